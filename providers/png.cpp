#include "providers/png.h"

#include <fmt/format.h>
#include <spng.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "convnet/base/checksum.h"
#include "convnet/base/endian.h"
#include "convnet/base/error.h"
#include "providers/channels.h"
#include "providers/orientation.h"
#include "providers/resize.h"

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

/// A PNG whose chunks have been checked.
struct CheckedPng {
  std::string bytes;    ///< only the chunks that pixels need: the library parses no texts and profiles
  int orientation = 1;  ///< orientation.h
  bool opaque = true;   ///< there are no opacities
};

/// Checks the lengths and checksums of all chunks.
CheckedPng checked_png(std::string_view bytes, const std::string& name) {
  CheckedPng checked{std::string(kPngMagic)};
  checked.bytes.reserve(bytes.size());
  bytes.remove_prefix(kPngMagic.size());
  for (std::string_view type; type != "IEND";) {
    if (bytes.size() < kFrame || bytes.size() - kFrame < big_endian(bytes))
      throw InputError(name + ": a PNG that is cut off");
    const Chunk chunk = take_chunk(bytes);
    type = chunk.type;
    Crc32 sum;
    sum.add(type.data(), type.size() + chunk.data.size());
    if (sum.value() != big_endian(chunk.whole.substr(8 + chunk.data.size())))
      throw InputError(name + ": a damaged PNG (checksum)");
    if (type == "CgBI")
      throw InputError(name + ": a PNG of Apple's own form (CgBI), which cannot be read; save it as PNG");
    if (type == "eXIf") checked.orientation = exif_orientation(chunk.data);
    if (type == "tRNS") checked.opaque = false;
    // A decoder may pass over chunks whose names begin with a small letter.
    const bool needed = type[0] < 'a' || type == "tRNS";
    if (needed && (!chunk.data.empty() || type != "IDAT")) checked.bytes += chunk.whole;
  }
  return checked;
}

using Decoder = std::unique_ptr<spng_ctx, decltype(&spng_ctx_free)>;

/// Throws what an error of the library means.
void check(int error, const std::string& name) {
  if (error == 0 || error == SPNG_EOI) return;
  if (error == SPNG_EMEM) throw std::bad_alloc();
  throw InputError(fmt::format("{}: a damaged image: {}", name, spng_strerror(error)));
}

/// Returns a decoder that has read the header. `png` must outlive it.
Decoder open_png(const std::string& png, const std::string& name) {
  Decoder decoder(spng_ctx_new(SPNG_CTX_IGNORE_ADLER32), &spng_ctx_free);
  if (!decoder) throw std::bad_alloc();
  // Checksums were compared.
  check(spng_set_crc_action(decoder.get(), SPNG_CRC_USE, SPNG_CRC_USE), name);
  check(spng_set_png_buffer(decoder.get(), png.data(), png.size()), name);
  return decoder;
}

}  // namespace

DecodedImage decode_png(std::string_view bytes, const std::string& name, const ChooseWindow& choose) {
  const CheckedPng png = checked_png(bytes, name);
  const Decoder decoder = open_png(png.bytes, name);
  spng_ihdr header = {};
  check(spng_get_ihdr(decoder.get(), &header), name);
  check_size(header.width, header.height, name);
  const ImageSize stored{static_cast<int>(header.height), static_cast<int>(header.width)};
  ImageWindow window{0, 0, stored.height, stored.width};
  if (choose) window = stored_window(choose(upright_size(stored, png.orientation)), stored, png.orientation);

  const bool opaque = png.opaque && header.color_type != SPNG_COLOR_TYPE_GRAYSCALE_ALPHA &&
                      header.color_type != SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
  const std::size_t channels = opaque ? 3 : 4;
  const std::size_t row_bytes = std::size_t{header.width} * channels;
  const int format = opaque ? SPNG_FMT_RGB8 : SPNG_FMT_RGBA8;
  DecodedImage image{window.height, window.width, {}};
  const auto out_bytes = static_cast<std::size_t>(window.width) * 3;
  image.pixels.resize(out_bytes * static_cast<std::size_t>(window.height));
  const auto write_row = [&](const std::uint8_t* row, int y) {
    const std::uint8_t* const from = row + static_cast<std::size_t>(window.x) * channels;
    std::uint8_t* const to = image.pixels.data() + static_cast<std::size_t>(y - window.y) * out_bytes;
    if (opaque)
      std::copy(from, from + out_bytes, to);
    else
      blend_onto_white(from, static_cast<std::size_t>(window.width), to);
  };
  const int end = window.y + window.height;
  if (header.interlace_method == SPNG_INTERLACE_NONE) {
    std::vector<std::uint8_t> row(row_bytes);
    check(spng_decode_image(decoder.get(), nullptr, 0, format, SPNG_DECODE_TRNS | SPNG_DECODE_PROGRESSIVE),
          name);
    for (int y = 0; y < end; ++y) {
      check(spng_decode_row(decoder.get(), row.data(), row.size()), name);
      if (y >= window.y) write_row(row.data(), y);
    }
  } else {
    std::vector<std::uint8_t> rows(row_bytes * header.height);
    check(spng_decode_image(decoder.get(), rows.data(), rows.size(), format, SPNG_DECODE_TRNS), name);
    for (int y = window.y; y < end; ++y) write_row(rows.data() + static_cast<std::size_t>(y) * row_bytes, y);
  }
  return upright(std::move(image), png.orientation);
}

}  // namespace convnet
