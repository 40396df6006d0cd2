#include "convnet/show/picture.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <zlib.h>

#include <cstdlib>

/// zlib's files are half as large as those of stb's own compressor. Memory from malloc, as stb frees it; null
/// where it fails.
static unsigned char* zlib_compress(unsigned char* bytes, int count, int* compressed, int level) {
  uLongf size = compressBound(static_cast<uLong>(count));
  auto* out = static_cast<unsigned char*>(std::malloc(size));
  if (out == nullptr || compress2(out, &size, bytes, static_cast<uLong>(count), level) != Z_OK) {
    std::free(out);
    return nullptr;
  }
  *compressed = static_cast<int>(size);
  return out;
}

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#define STBIW_ZLIB_COMPRESS zlib_compress
#include <stb/stb_image_write.h>

#include "convnet/base/error.h"

namespace convnet {

Picture::Picture(int width, int height, Color background) : width_(width), height_(height) {
  constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;
  if (width < 1 || height < 1 || std::int64_t{width} * height > kMostPixels)
    throw std::invalid_argument("a picture cannot have " + std::to_string(width) + "x" +
                                std::to_string(height) + " pixels");
  rgb_.reserve(index(0, height));
  while (rgb_.size() < index(0, height)) rgb_.insert(rgb_.end(), {background.r, background.g, background.b});
}

Color Picture::at(int x, int y) const {
  const std::size_t i = index(x, y);
  return {rgb_.at(i), rgb_.at(i + 1), rgb_.at(i + 2)};
}

void Picture::set(int x, int y, Color color) {
  const std::size_t i = index(x, y);
  rgb_.at(i) = color.r;
  rgb_.at(i + 1) = color.g;
  rgb_.at(i + 2) = color.b;
}

void Picture::blend(int x, int y, Color color, double coverage) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_ || coverage <= 0) return;
  const double share = std::min(1.0, coverage);
  const Color below = at(x, y);
  const auto mix = [&](std::uint8_t a, std::uint8_t b) {
    return static_cast<std::uint8_t>(std::lround(a + (b - a) * share));
  };
  set(x, y, {mix(below.r, color.r), mix(below.g, color.g), mix(below.b, color.b)});
}

Picture Picture::enlarged(int factor) const {
  Picture large(width_ * factor, height_ * factor);
  for (int y = 0; y < large.height_; ++y) {
    for (int x = 0; x < large.width_; ++x) large.set(x, y, at(x / factor, y / factor));
  }
  return large;
}

std::string Picture::png(const std::optional<Color>& transparent) const {
  std::string bytes;
  std::vector<std::uint8_t> rgba;
  if (transparent) {
    rgba.reserve(rgb_.size() / 3 * 4);
    for (std::size_t i = 0; i < rgb_.size(); i += 3) {
      const Color pixel = {rgb_[i], rgb_[i + 1], rgb_[i + 2]};
      const std::uint8_t alpha = pixel == *transparent ? 0 : 255;
      rgba.insert(rgba.end(), {pixel.r, pixel.g, pixel.b, alpha});
    }
  }
  const auto append = [](void* to, void* data, int size) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(data), static_cast<std::size_t>(size));
  };
  // Flat colours deflate best as they are.
  stbi_write_force_png_filter = 0;
  const int channels = transparent ? 4 : 3;
  const void* pixels = transparent ? rgba.data() : rgb_.data();
  if (stbi_write_png_to_func(append, &bytes, width_, height_, channels, pixels, width_ * channels) == 0)
    throw RunError("a picture of " + std::to_string(width_) + "x" + std::to_string(height_) +
                   " pixels cannot be made a PNG");
  return bytes;
}

}  // namespace convnet
