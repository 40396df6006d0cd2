#include "providers/decode.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <memory>

#include "kernels/error.h"
#include "providers/jpeg.h"

namespace {

/// A few bytes of PNG can ask for gigabytes.
bool small_enough(std::size_t bytes) { return bytes <= std::size_t{1} << 30; }

}  // namespace

#define STBI_MALLOC(bytes) (small_enough(bytes) ? std::malloc(bytes) : nullptr)
#define STBI_REALLOC(old, bytes) (small_enough(bytes) ? std::realloc(old, bytes) : nullptr)
#define STBI_FREE(old) std::free(old)
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#include <zlib.h>

namespace convnet {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view png_magic = "\x89PNG\r\n\x1a\n"sv;

std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char c : bytes.substr(0, 4)) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

/// The checksums of a PNG's pieces, which stb_image does not look at. Each is length, type, data, checksum.
void check_png(std::string_view bytes, const std::string& name) {
  bytes.remove_prefix(png_magic.size());
  for (std::string_view type; type != "IEND";) {
    if (bytes.size() < 12 || bytes.size() - 12 < big_endian(bytes))
      throw InputError(name + ": a PNG that is cut off");
    const std::size_t length = big_endian(bytes);
    type = bytes.substr(4, 4);
    const uLong sum =
        crc32(0, reinterpret_cast<const Bytef*>(bytes.data()) + 4, static_cast<uInt>(length + 4));
    if (sum != big_endian(bytes.substr(8 + length))) throw InputError(name + ": a damaged PNG (checksum)");
    bytes.remove_prefix(length + 12);
  }
}

std::uint64_t little_endian(std::string_view bytes, std::size_t offset, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  return value;
}

/// That all rows are there, for stb_image reads zeros beyond the end. `size` and a header were read before.
void check_bmp(std::string_view bytes, const DecodedImage& size, const std::string& name) {
  constexpr std::size_t start_at = 10, header_at = 14, old_header = 12;
  if (bytes.size() < header_at + old_header) throw InputError(name + ": a BMP that is cut off");
  const std::size_t bits_at = little_endian(bytes, header_at, 4) == old_header ? 24 : 28;
  if (bytes.size() < bits_at + 2) throw InputError(name + ": a BMP that is cut off");
  const std::uint64_t bits = little_endian(bytes, bits_at, 2), start = little_endian(bytes, start_at, 4);
  const std::uint64_t row = (static_cast<std::uint64_t>(size.width) * bits + 31) / 32 * 4;
  if (bytes.size() < start + row * static_cast<std::uint64_t>(size.height))
    throw InputError(name + ": a BMP that is cut off");
}

}  // namespace

DecodedImage decode_image(std::string_view bytes, const std::string& name, int wanted_side) {
  if (bytes.starts_with("\xff\xd8"sv)) return decode_jpeg(bytes, name, wanted_side);
  const bool is_png = bytes.starts_with(png_magic);
  if (!is_png && !bytes.starts_with("BM"sv)) throw InputError(name + ": is not a JPEG, PNG or BMP image");
  if (bytes.size() > std::numeric_limits<int>::max())
    throw InputError(fmt::format("{}: an image of {} bytes", name, bytes.size()));
  if (is_png) check_png(bytes, name);
  const auto* const data = reinterpret_cast<const stbi_uc*>(bytes.data());
  const int size = static_cast<int>(bytes.size());
  const auto fail = [&] {
    throw InputError(fmt::format("{}: a damaged image: {}", name, stbi_failure_reason()));
  };
  DecodedImage image;
  int channels = 0;
  if (stbi_info_from_memory(data, size, &image.width, &image.height, &channels) == 0) fail();
  if (std::int64_t{image.width} * image.height > max_image_pixels)
    throw InputError(
        fmt::format("{}: {} x {} pixels; {} are allowed", name, image.width, image.height, max_image_pixels));
  if (!is_png) check_bmp(bytes, image, name);
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(data, size, &image.width, &image.height, &channels, 3), stbi_image_free);
  if (!pixels) fail();
  image.pixels.assign(pixels.get(), pixels.get() + std::size_t{3} * static_cast<std::size_t>(image.width) *
                                                       static_cast<std::size_t>(image.height));
  return image;
}

}  // namespace convnet
