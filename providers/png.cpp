#include "providers/png.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <optional>

#include "convnet/base/checksum.h"
#include "convnet/base/endian.h"
#include "convnet/base/error.h"
#include "providers/orientation.h"

namespace convnet {
namespace {

constexpr std::size_t kFrame = 12;  // bytes of a chunk besides its data: length, type, checksum

/// A chunk of a PNG that checked_png() has checked.
struct Chunk {
  std::string_view type, data, whole;
};

/// Removes the next chunk from `bytes` and returns it.
Chunk take_chunk(std::string_view& bytes) {
  const std::size_t length = big_endian(bytes);
  const Chunk chunk = {bytes.substr(4, 4), bytes.substr(8, length), bytes.substr(0, length + kFrame)};
  bytes.remove_prefix(length + kFrame);
  return chunk;
}

std::string big_endian_text(std::uint64_t number) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(number >> shift & 0xFF);
  return text;
}

/// Returns the bytes that the rows of an image have before they are compressed, by the header's chunk;
/// nullopt if that makes no sense. A row is its filter's number, then the pixels in whole bytes.
std::optional<std::uint64_t> bytes_of_rows(std::string_view header) {
  constexpr std::size_t kHeaderBytes = 13;
  if (header.size() < kHeaderBytes) return std::nullopt;
  const std::uint64_t width = big_endian(header), height = big_endian(header.substr(4));
  const auto depth = static_cast<unsigned char>(header[8]), color = static_cast<unsigned char>(header[9]);
  constexpr std::array<std::uint64_t, 7> kChannels = {1, 0, 3, 1, 2, 0, 4};
  if (color >= kChannels.size() || depth > 16 || width > UINT32_MAX || height > UINT32_MAX)
    return std::nullopt;
  const std::uint64_t bits = kChannels.at(color) * depth;
  const auto rows = [&](std::uint64_t w, std::uint64_t h) {
    return w == 0 ? 0 : h * (1 + (w * bits + 7) / 8);
  };
  if (header[12] == 0) return rows(width, height);
  // Adam7: each pass has every x_step-th pixel from x on, and rows likewise.
  struct Pass {
    std::uint64_t x, y, x_step, y_step;
  };
  constexpr std::array<Pass, 7> kPasses = {
      {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}}};
  std::uint64_t bytes = 0;
  for (const Pass& p : kPasses)
    bytes += rows((width - std::min(width, p.x) + p.x_step - 1) / p.x_step,
                  (height - std::min(height, p.y) + p.y_step - 1) / p.y_step);
  return bytes;
}

/// Decompresses the data of several chunks, one after the other.
class Inflater {
 public:
  /// `window_bits` is zlib's: negative for data without zlib's header.
  explicit Inflater(int window_bits) {
    if (inflateInit2(&stream_, window_bits) != Z_OK) throw std::bad_alloc();
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  /// Reads `data` and fills the rest of the output `to` from `done` on, which it adds to. Returns false at
  /// the end of the compressed data, sound or not.
  bool add(std::string_view data, char* to, std::size_t size, std::size_t& done) {
    // zlib does not write to it.
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(data.data()));
    stream_.avail_in = static_cast<uInt>(data.size());
    stream_.next_out = reinterpret_cast<Bytef*>(to) + done;
    stream_.avail_out = static_cast<uInt>(size - done);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    done = size - stream_.avail_out;
    rest_ = data.substr(data.size() - stream_.avail_in);
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    return result == Z_OK || result == Z_BUF_ERROR;
  }
  /// Returns what add() has not read.
  std::string_view rest() const { return rest_; }

 private:
  z_stream stream_ = {};
  std::string_view rest_;
};

/// Compressed data that are not compressed: blocks of at most kMost bytes behind a head of kHead bytes.
struct StoredBlocks {
  static constexpr std::size_t kMost = 65535, kHead = 5;
  std::string bytes;

  /// Begins a block and returns the place of its data.
  std::size_t open(std::size_t size) {
    bytes.resize(bytes.size() + kHead + size);
    return bytes.size() - size;
  }
  /// Ends the block whose data begin at `at` after `size` bytes.
  void close(std::size_t at, std::size_t size, bool last) {
    bytes.resize(at + size);
    const std::uint64_t length = size, inverse = ~length;
    bytes[at - kHead] = last ? '\1' : '\0';
    for (std::size_t i = 0; i < 2; ++i) {
      bytes[at - 4 + i] = static_cast<char>(length >> 8 * i & 0xFF);
      bytes[at - 2 + i] = static_cast<char>(inverse >> 8 * i & 0xFF);
    }
  }
};

/// Returns the data of all chunks of pixels, decompressed to at most `most` bytes, in stored blocks.
std::string stored_pixels(std::string_view chunks, std::uint64_t most, bool bare) {
  Inflater inflater(bare ? -MAX_WBITS : MAX_WBITS);
  StoredBlocks blocks;
  if (!bare) blocks.bytes = "\x78\x01";  // zlib's header
  std::string_view data;
  bool goes_on = true;
  while (true) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(most, StoredBlocks::kMost));
    const std::size_t at = blocks.open(size);
    std::size_t done = 0;
    while (done < size && goes_on) {
      if (!data.empty()) {
        goes_on = inflater.add(data, blocks.bytes.data() + at, size, done);
        data = inflater.rest();
      } else if (!chunks.empty()) {
        const Chunk chunk = take_chunk(chunks);
        if (chunk.type == "IDAT") data = chunk.data;
      } else {
        goes_on = false;
      }
    }
    most -= done;
    blocks.close(at, done, most == 0 || !goes_on);
    if (most == 0 || !goes_on) return std::move(blocks.bytes);
  }
}

}  // namespace

CheckedPng checked_png(std::string_view bytes, const std::string& name) {
  CheckedPng checked{std::string(png_magic)};
  bytes.remove_prefix(png_magic.size());
  for (std::string_view type; type != "IEND";) {
    if (bytes.size() < kFrame || bytes.size() - kFrame < big_endian(bytes))
      throw InputError(name + ": a PNG that is cut off");
    const Chunk chunk = take_chunk(bytes);
    type = chunk.type;
    Crc32 sum;
    sum.add(type.data(), type.size() + chunk.data.size());
    if (sum.value() != big_endian(chunk.whole.substr(8 + chunk.data.size())))
      throw InputError(name + ": a damaged PNG (checksum)");
    if (type == "eXIf") checked.orientation = exif_orientation(chunk.data);
    if (!chunk.data.empty() || type != "IDAT") checked.bytes += chunk.whole;
  }
  return checked;
}

std::string with_bounded_pixels(const std::string& png) {
  std::string_view rest = png;
  rest.remove_prefix(png_magic.size());
  std::string out(png_magic);
  std::optional<std::uint64_t> most;
  bool bare = false, written = false;  // bare: Apple's variant has no header of zlib
  while (!rest.empty()) {
    const std::string_view from_here = rest;
    const Chunk chunk = take_chunk(rest);
    bare = bare || chunk.type == "CgBI";
    if (chunk.type == "IHDR") most = bytes_of_rows(chunk.data);
    if (chunk.type != "IDAT" || !most) {
      out += chunk.whole;
      continue;
    }
    if (written) continue;
    written = true;
    const std::string pixels = stored_pixels(from_here, *most, bare);
    out += big_endian_text(pixels.size());
    out += "IDAT";
    out += pixels;
    out += big_endian_text(0);  // no decoder here looks at the checksum again
  }
  return out;
}

}  // namespace convnet
