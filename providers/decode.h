// Decodes images.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// The most pixels of an image. Files that claim more are refused, because they could exhaust the memory.
constexpr std::int64_t kMaxImagePixels = 100'000'000;

/// An RGB image, with values from 0 to 255.
struct DecodedImage {
  int height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  ///< (H,W,3)
};

/// Size of an image in pixels.
struct ImageSize {
  int height = 0, width = 0;
};
/// A rectangle of an image.
struct ImageWindow {
  int y = 0, x = 0, height = 0, width = 0;
};

/// Returns the luma of a colour (ITU-R BT.601, as in grey JPEGs); for r = g = b it is that number.
constexpr std::uint8_t luma(std::uint8_t r, std::uint8_t g, std::uint8_t b) {
  return static_cast<std::uint8_t>((299 * r + 587 * g + 114 * b + 500) / 1000);
}
/// Gives every pixel the grey of its luma.
void make_grey(DecodedImage& image);

/// Decodes a JPEG, PNG, BMP or WebP file. Grey images become RGB, CMYK images (JPEG) are converted,
/// transparent images (PNG, BMP, WebP) are blended onto white. Images are rotated as their EXIF orientation
/// says, if they have one. If `wanted_side` > 0, a JPEG or WebP may be decoded smaller by a factor of 2, 4 or
/// 8, if its shorter side is then still at least `wanted_side`. Throws InputError, whose message begins with
/// `name`, if the bytes are no image, are damaged or cut off, or if the image has no pixels or more than
/// kMaxImagePixels.
DecodedImage decode_image(std::string_view bytes, const std::string& name, int wanted_side = 0);

/// Chooses a window, of at least one pixel, within an upright image of this size.
using ChooseWindow = std::function<ImageWindow(ImageSize)>;
/// Decodes the window that `choose` returns. Of all but BMPs only what the window needs is computed, and
/// `wanted_side` is compared with the window's shorter side. Of damage below the window of a JPEG only a
/// missing end is noticed, and of a PNG only what lengths and checksums tell. Throws what decode_image() and
/// `choose` throw.
DecodedImage decode_window(std::string_view bytes, const std::string& name, const ChooseWindow& choose,
                           int wanted_side = 0);

}  // namespace convnet
