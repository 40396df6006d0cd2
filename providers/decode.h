// Images as bytes of a file, and as pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// An image may have so many pixels; more is taken for an attack.
constexpr std::int64_t max_image_pixels = 100'000'000;

/// Pixels with red, green and blue, 0 to 255.
struct DecodedImage {
  int height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  ///< (H,W,3)

  int shorter_side() const { return height < width ? height : width; }
};

/// Throws InputError, beginning with `name`, if one side of the image is more than `most` times the other:
/// scaled to a size, it could be enormous.
void check_aspect(const DecodedImage& image, const std::string& name, int most);

/// A rectangle of an image.
struct ImageWindow {
  int y = 0, x = 0, height = 0, width = 0;
};

/// Reads a JPEG, PNG or BMP file. Grey images become RGB, CMYK ones (JPEG) are converted, transparent ones
/// (PNG, BMP) are blended onto white; JPEGs are turned as their EXIF orientation says. With `wanted_side` > 0
/// a JPEG may come smaller than it is, by a factor of 2, 4 or 8, with its shorter side still at least
/// `wanted_side`. The image has at least one pixel. Throws InputError beginning with `name`: not an image,
/// damaged, cut off, without pixels, more than max_image_pixels.
DecodedImage decode_image(std::string_view bytes, const std::string& name, int wanted_side = 0);

/// `height` and `width`, each at least 1, scaled so that the shorter side is `side`; the longer is rounded,
/// and no larger than an int can be.
struct ImageSize {
  int height = 0, width = 0;
};
ImageSize scaled_to_shorter_side(ImageSize size, int side);

/// The pixels that `window` would show if the image were scaled to `size` (at least 1x1): each is a mean of
/// the pixels it covers, weighted by their distance (bilinear, with the filter as wide as a new pixel when
/// the image gets smaller). The same bits on every machine. The window lies within `size`.
DecodedImage resize_image(const DecodedImage& image, ImageSize size, const ImageWindow& window);
DecodedImage resize_image(const DecodedImage& image, ImageSize size);

/// The pixels of `window`, which lies within the image.
DecodedImage cut_window(const DecodedImage& image, const ImageWindow& window);

/// The square of side `side` in the middle; the upper left one where there is none. `side` is at most the
/// shorter side.
DecodedImage centre_square(const DecodedImage& image, int side);

/// `quality` is 1 to 100; colours have half the resolution.
std::string encode_jpeg(const DecodedImage& image, int quality = 95);

}  // namespace convnet
