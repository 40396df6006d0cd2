#include "providers/bmp.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <memory>

#include "convnet/base/endian.h"
#include "convnet/base/error.h"
#include "providers/channels.h"
#include "providers/resize.h"

#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>

namespace convnet {
namespace {

using namespace std::string_view_literals;

/// The parts of a BMP's header that are needed to find its pixels.
struct BmpHeader {
  std::uint64_t size = 0;    ///< bytes of the second header, which says what form it has
  std::uint64_t pixels = 0;  ///< offset of the first row
  std::int64_t width = 0, height = 0;
  std::uint64_t bits = 0;         ///< bits of a pixel
  std::uint64_t compression = 0;  ///< 0: none

  std::uint64_t row_bytes() const { return (static_cast<std::uint64_t>(width) * bits + 31) / 32 * 4; }
};
constexpr std::uint64_t kBmpFileHeader = 14, kOs2Header = 12, kWindowsHeader = 40;
constexpr std::uint64_t kBmpRle8 = 1, kBmpRle4 = 2, kBmpMasks = 3, kBmpJpeg = 4, kBmpPng = 5;

BmpHeader read_bmp_header(std::string_view bytes, const std::string& name) {
  const auto number = [&](std::uint64_t offset, std::size_t size) {
    if (bytes.size() < offset + size) throw InputError(name + ": a BMP that is cut off");
    return little_endian(bytes, offset, size);
  };
  BmpHeader header;
  header.pixels = number(10, 4);
  header.size = number(kBmpFileHeader, 4);
  if (header.size == kOs2Header) {
    header.width = static_cast<std::int64_t>(number(18, 2));
    header.height = static_cast<std::int64_t>(number(20, 2));
    header.bits = number(24, 2);
  } else {
    header.width = static_cast<std::int32_t>(number(18, 4));
    // Rows of a negative height lie from top to bottom.
    header.height = std::abs(std::int64_t{static_cast<std::int32_t>(number(22, 4))});
    header.bits = number(28, 2);
    header.compression = number(30, 4);
  }
  return header;
}

void check_compression(const BmpHeader& header, const std::string& name) {
  const std::uint64_t form = header.compression;
  if (form == kBmpRle8 || form == kBmpRle4)
    throw InputError(name + ": a BMP that is compressed (RLE), which cannot be read; save it as PNG");
  if (form == kBmpJpeg || form == kBmpPng)
    throw InputError(name + ": a BMP that holds a JPEG or PNG, which cannot be read; save it as PNG");
  if (form > kBmpMasks)
    throw InputError(fmt::format("{}: a BMP of form {}, which cannot be read; save it as PNG", name, form));
}

/// Checks what stb_image does not check: that all rows exist (it reads zeros beyond the end), and that the
/// palette has the colours of all pixels (it reads others from uninitialised memory).
void check_bmp(std::string_view bytes, const BmpHeader& header, const std::string& name) {
  constexpr std::array<std::uint64_t, 5> forms = {kOs2Header, kWindowsHeader, 56, 108, 124};
  if (std::find(forms.begin(), forms.end(), header.size) == forms.end())
    throw InputError(
        fmt::format("{}: a damaged image: a BMP whose header says that it has {} bytes", name, header.size));
  check_size(header.width, header.height, name);
  check_compression(header, name);
  constexpr std::array<std::uint64_t, 6> depths = {1, 4, 8, 16, 24, 32};
  if (std::find(depths.begin(), depths.end(), header.bits) == depths.end())
    throw InputError(fmt::format("{}: a damaged image: a BMP of {} bits a pixel; there are {}", name,
                                 header.bits, fmt::join(depths, ", ")));
  const std::uint64_t row = header.row_bytes(), colors_at = kBmpFileHeader + header.size;
  if (bytes.size() < header.pixels + row * static_cast<std::uint64_t>(header.height))
    throw InputError(name + ": a BMP that is cut off");
  if (header.bits > 8) return;
  if (header.size < kWindowsHeader)
    throw InputError(name + ": a BMP of OS/2 with a palette, which cannot be read; save it as PNG");
  if (header.pixels < colors_at + 4)
    throw InputError(name + ": a damaged image: a BMP whose palette is not before its pixels");
  const std::uint64_t colors = (header.pixels - colors_at) / 4, in_byte = 8 / header.bits;
  if (colors >= std::uint64_t{1} << header.bits) return;
  for (std::int64_t y = 0; y < header.height; ++y)
    for (std::uint64_t x = 0; x < static_cast<std::uint64_t>(header.width); ++x) {
      const std::string_view line = bytes.substr(header.pixels + static_cast<std::uint64_t>(y) * row);
      const unsigned value = static_cast<unsigned char>(line[x / in_byte]);
      const std::uint64_t shift = (in_byte - 1 - x % in_byte) * header.bits;
      if ((value >> shift & ((1U << header.bits) - 1)) >= colors)
        throw InputError(fmt::format(
            "{}: a damaged image: a BMP with a pixel whose colour is not among the {} of its palette", name,
            colors));
    }
}

/// Returns a checked BMP without what stb_image takes for damage: bytes between the header and the pixels, as
/// of a palette for screens of 256 colours, or more colours than pixels can have.
std::string plain_bmp(std::string_view bytes, const BmpHeader& header, const std::string& name) {
  std::uint64_t before = kBmpFileHeader + header.size;
  if (header.bits <= 8)
    before = std::min(header.pixels, before + 4 * (std::uint64_t{1} << header.bits));
  else if (header.compression == kBmpMasks && header.size == kWindowsHeader)
    before += 12;  // the masks of red, green and blue
  if (header.pixels < before)
    throw InputError(name + ": a damaged image: a BMP whose pixels begin within its header");
  std::string plain(bytes.substr(0, before));
  plain += bytes.substr(header.pixels);
  for (std::size_t i = 0; i < 4; ++i) plain[10 + i] = static_cast<char>(before >> (8 * i) & 0xff);
  return plain;
}

}  // namespace

bool is_bmp(std::string_view bytes) { return bytes.starts_with("BM"sv); }

DecodedImage decode_bmp(std::string_view bytes, const std::string& name) {
  const BmpHeader header = read_bmp_header(bytes, name);
  check_bmp(bytes, header, name);
  const std::string bmp = plain_bmp(bytes, header, name);
  if (bmp.size() > std::numeric_limits<int>::max())
    throw InputError(fmt::format("{}: an image of {} bytes", name, bmp.size()));
  constexpr int with_opacity = 4;
  DecodedImage image;
  int channels = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(bmp.data()), static_cast<int>(bmp.size()),
                            &image.width, &image.height, &channels, with_opacity),
      stbi_image_free);
  if (!pixels) throw InputError(fmt::format("{}: a damaged image: {}", name, stbi_failure_reason()));
  const std::size_t count = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height);
  image.pixels.resize(3 * count);
  blend_onto_white(pixels.get(), count, image.pixels.data());
  return image;
}

}  // namespace convnet
