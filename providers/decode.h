// Decodes, scales, crops and encodes images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// The most pixels of an image. Files that claim more are refused, because they could exhaust the memory.
constexpr std::int64_t max_image_pixels = 100'000'000;

/// An RGB image, with values from 0 to 255.
struct DecodedImage {
  int height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  ///< (H,W,3)

  int shorter_side() const { return height < width ? height : width; }
};

/// Throws InputError, whose message begins with `name`, if one side of the image is more than `most` times
/// the other: scaled by its shorter side, such an image could be enormous.
void check_aspect(const DecodedImage& image, const std::string& name, int most);

/// A rectangle of an image.
struct ImageWindow {
  int y = 0, x = 0, height = 0, width = 0;
};

/// Decodes a JPEG, PNG or BMP file. Grey images become RGB, CMYK images (JPEG) are converted, transparent
/// images (PNG, BMP) are blended onto white. JPEGs are rotated as their EXIF orientation says. If
/// `wanted_side` > 0, a JPEG may be decoded smaller by a factor of 2, 4 or 8, if its shorter side is then
/// still at least `wanted_side`. Throws InputError, whose message begins with `name`, if the bytes are no
/// image, are damaged or cut off, or if the image has no pixels or more than max_image_pixels.
DecodedImage decode_image(std::string_view bytes, const std::string& name, int wanted_side = 0);

/// Size of an image in pixels.
struct ImageSize {
  int height = 0, width = 0;
};
/// Returns `size`, whose sides are at least 1, scaled so that the shorter side is `side`. The longer one is
/// rounded, and limited to what an int can hold.
ImageSize scaled_to_shorter_side(ImageSize size, int side);

/// Returns the part `window` of the image scaled to `size` (at least 1x1). The window must lie within `size`.
/// Scaling is bilinear with antialiasing: each pixel is a mean of the pixels that it covers, weighted by
/// their distance. The result has the same bits on every machine.
DecodedImage resize_image(const DecodedImage& image, ImageSize size, const ImageWindow& window);
DecodedImage resize_image(const DecodedImage& image, ImageSize size);

/// Returns the part `window` of an image, which must lie within it.
DecodedImage cut_window(const DecodedImage& image, const ImageWindow& window);

/// Returns the square of side `side` in the middle of the image, half a pixel further up or left if it cannot
/// be exactly there. `side` is at most the shorter side.
DecodedImage centre_square(const DecodedImage& image, int side);

/// Returns a JPEG file. `quality` is 1 to 100; colours have half the resolution of the brightness.
std::string encode_jpeg(const DecodedImage& image, int quality = 95);

}  // namespace convnet
