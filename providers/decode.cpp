#include "providers/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

/// Where scaling one axis takes the pixels from: out[i] = sum of weight * in[first + k].
struct Taps {
  int first = 0;
  std::vector<std::int32_t> weights;  ///< of 1 << weight_bits
};
constexpr int weight_bits = 14;

/// For the new pixels [begin, end) of `to`, made of `from`.
std::vector<Taps> make_taps(int from, int to, int begin, int end) {
  const double scale = static_cast<double>(from) / to, radius = std::max(1.0, scale);
  std::vector<Taps> all;
  for (int i = begin; i < end; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(std::floor(centre - radius)));
    const int last = std::min(from, static_cast<int>(std::ceil(centre + radius)));
    std::vector<double> weights;
    double sum = 0;
    for (int x = first; x < last; ++x) {
      weights.push_back(std::max(0.0, 1 - std::abs(x + 0.5 - centre) / radius));
      sum += weights.back();
    }
    Taps taps{first, {}};
    // Rounding errors are handed on, so that the weights add up and a plain area stays as it is.
    double exact = 0;
    std::int32_t given = 0;
    for (const double weight : weights) {
      exact += weight / sum * (1 << weight_bits);
      taps.weights.push_back(static_cast<std::int32_t>(std::lround(exact)) - given);
      given += taps.weights.back();
    }
    all.push_back(std::move(taps));
  }
  return all;
}

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>((sum + (1 << (weight_bits - 1))) >> weight_bits);
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

ImageSize scaled_to_shorter_side(ImageSize size, int side) {
  const auto scaled = [side](std::int64_t longer, std::int64_t shorter) {
    return static_cast<int>((longer * side + shorter / 2) / shorter);
  };
  return size.height < size.width ? ImageSize{side, scaled(size.width, size.height)}
                                  : ImageSize{scaled(size.height, size.width), side};
}

DecodedImage resize_image(const DecodedImage& image, ImageSize size, const ImageWindow& window) {
  const std::vector<Taps> rows = make_taps(image.height, size.height, window.y, window.y + window.height);
  const std::vector<Taps> columns = make_taps(image.width, size.width, window.x, window.x + window.width);
  DecodedImage out{window.height, window.width, {}};
  out.pixels.reserve(std::size_t{3} * static_cast<std::size_t>(window.height) *
                     static_cast<std::size_t>(window.width));
  // The columns that are needed, as a range of a row's bytes.
  const auto begin = static_cast<std::size_t>(columns.front().first) * 3;
  const auto end = (static_cast<std::size_t>(columns.back().first) + columns.back().weights.size()) * 3;
  std::vector<std::int32_t> sums(end - begin);
  std::vector<std::uint8_t> row(end - begin);
  for (const Taps& from : rows) {
    std::fill(sums.begin(), sums.end(), 0);
    const std::uint8_t* source = image.pixels.data() + static_cast<std::size_t>(from.first) *
                                                           static_cast<std::size_t>(image.width) * 3;
    for (const std::int32_t weight : from.weights) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += weight * source[begin + i];
      source += static_cast<std::size_t>(image.width) * 3;
    }
    std::transform(sums.begin(), sums.end(), row.begin(), rounded);
    for (const Taps& taps : columns) {
      std::int32_t red = 0, green = 0, blue = 0;
      const std::uint8_t* pixel = row.data() + static_cast<std::size_t>(taps.first) * 3 - begin;
      for (const std::int32_t weight : taps.weights) {
        red += weight * pixel[0];
        green += weight * pixel[1];
        blue += weight * pixel[2];
        pixel += 3;
      }
      for (const std::int32_t sum : {red, green, blue}) out.pixels.push_back(rounded(sum));
    }
  }
  return out;
}

DecodedImage resize_image(const DecodedImage& image, ImageSize size) {
  return resize_image(image, size, {0, 0, size.height, size.width});
}

DecodedImage centre_square(const DecodedImage& image, int side) {
  DecodedImage out{side, side, {}};
  const int y = (image.height - side) / 2, x = (image.width - side) / 2;
  for (int row = y; row < y + side; ++row) {
    const auto at = image.pixels.begin() + (std::ptrdiff_t{row} * image.width + x) * 3;
    out.pixels.insert(out.pixels.end(), at, at + std::ptrdiff_t{side} * 3);
  }
  return out;
}

}  // namespace convnet
