#include "providers/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <system_error>

#include "convnet/base/available_memory.h"
#include "convnet/base/error.h"
#include "convnet/base/file_format.h"

namespace convnet {
namespace {

constexpr std::int64_t kMaxIdxSide = 4096;
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

/// Bytes of a file, decompressed if it is gzip (zlib passes any other file through).
class ByteStream {
 public:
  explicit ByteStream(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_) throw RunError(fmt::format("{}: cannot be opened: {}", path, system_message(errno)));
    gzbuffer(file_.get(), 1U << 17);
  }

  /// Reads up to `count` bytes; fewer only at the end of the data.
  std::size_t read(std::uint8_t* to, std::size_t count) {
    std::size_t done = 0;
    while (done < count) {
      const auto step = static_cast<unsigned>(std::min(count - done, kChunkBytes));
      const int got = gzread(file_.get(), to + done, step);
      done += static_cast<std::size_t>(std::max(got, 0));
      if (got == static_cast<int>(step)) continue;
      check_stream_end(done);
      break;
    }
    position_ += done;
    return done;
  }

 private:
  struct Close {
    void operator()(gzFile file) const noexcept { gzclose_r(file); }
  };

  static std::string system_message(int code) { return std::generic_category().message(code); }

  /// A short read is the end of the data, or an error that zlib keeps.
  void check_stream_end(std::size_t done) {
    const int read_errno = errno;
    int code = Z_OK;
    const std::string message = gzerror(file_.get(), &code);  // "path: what"
    if (code == Z_OK) return;
    if (code == Z_ERRNO)
      throw RunError(fmt::format("{}: cannot be read: {}", path_, system_message(read_errno)));
    if (code == Z_BUF_ERROR)
      throw InputError(fmt::format("{}: the gzip data is truncated, {} bytes could be decompressed", path_,
                                   position_ + done));
    throw InputError(fmt::format("{}: corrupt gzip data: {}", path_,
                                 message.substr(std::min(message.size(), path_.size() + 2))));
  }

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::size_t position_ = 0;
};

IdxHeader read_header(ByteStream& stream, const std::string& path, int dimensions) {
  const std::size_t size = 4 + 4 * static_cast<std::size_t>(dimensions);
  std::vector<std::uint8_t> bytes(size);
  const std::size_t got = stream.read(bytes.data(), size);
  if (got < size)
    throw InputError(fmt::format("{}: truncated: it has {} bytes, an IDX header has {}", path, got, size));
  const auto word = [&](std::size_t at) {
    return std::uint32_t{bytes[at]} << 24 | std::uint32_t{bytes[at + 1]} << 16 |
           std::uint32_t{bytes[at + 2]} << 8 | std::uint32_t{bytes[at + 3]};
  };
  const std::uint32_t expected = 0x800U | static_cast<std::uint32_t>(dimensions);
  if (word(0) != expected) {
    const std::string otherwise = fmt::format(
        "the magic number is 0x{:08x}, but an IDX file of unsigned bytes with {} dimension{} has "
        "0x{:08x}",
        word(0), dimensions, dimensions == 1 ? "" : "s", expected);
    const std::string first(bytes.begin(), bytes.end());
    throw InputError(path + ": " + other_format_text(first, "an IDX file", otherwise));
  }
  IdxHeader header;
  for (std::size_t at = 4; at < size; at += 4) header.dims.push_back(word(at));
  if (header.records() == 0)
    throw InputError(fmt::format("{}: the header says that it holds 0 records", path));
  for (std::size_t i = 1; i < header.dims.size(); ++i)
    if (header.dims[i] < 1 || header.dims[i] > kMaxIdxSide)
      throw InputError(fmt::format("{}: the header says that records are {}; sides are 1 to {}", path,
                                   to_string(Dims(header.dims.begin() + 1, header.dims.end())), kMaxIdxSide));
  return header;
}

}  // namespace

IdxHeader read_idx_header(const std::string& path, int dimensions) {
  ByteStream stream(path);
  return read_header(stream, path, dimensions);
}

std::vector<std::uint8_t> read_idx_records(const std::string& path, const IdxHeader& header) {
  ByteStream stream(path);
  if (read_header(stream, path, static_cast<int>(header.dims.size())) != header)
    throw InputError(fmt::format("{}: the file was changed while it was in use", path));

  const auto promised = static_cast<std::size_t>(element_count(header.dims));
  // A gzip file of some megabytes can hold gigabytes.
  const std::int64_t memory = available_memory();
  std::vector<std::uint8_t> bytes;
  while (bytes.size() < promised) {
    const std::size_t had = bytes.size();
    const std::size_t step = std::min(promised - had, kChunkBytes);
    if (static_cast<std::int64_t>(had + step) > memory)
      throw InputError(
          fmt::format("{}: the header promises {} records, {} bytes, which the memory cannot hold", path,
                      header.records(), promised));
    bytes.resize(had + step);
    const std::size_t got = stream.read(bytes.data() + had, step);
    if (got == step) continue;
    const std::size_t there = had + got;
    throw InputError(fmt::format(
        "{}: truncated in record {} (counted from 0): the header "
        "promises {} records, {} bytes after the header, but there are {}",
        path, there / static_cast<std::size_t>(header.record_bytes()), header.records(), promised, there));
  }
  // Also makes zlib check the sum at the end of gzip data.
  std::uint8_t extra = 0;
  if (stream.read(&extra, 1) != 0)
    throw InputError(
        fmt::format("{}: too long: there are bytes after the {} records that the header promises", path,
                    header.records()));
  return bytes;
}

}  // namespace convnet
