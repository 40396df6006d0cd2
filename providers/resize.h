// Scales and cuts decoded images.
#pragma once

#include <cstdint>
#include <string>

#include "providers/decode.h"

namespace convnet {

/// Throws InputError, whose message begins with `name`, if an image has no pixels or too many
/// (kMaxImagePixels).
void check_size(std::int64_t width, std::int64_t height, const std::string& name);

/// How many times the other side one side of an image in a data set may be.
inline constexpr int kMaxAspect = 100;
/// Throws InputError, whose message begins with `name`, if one side of an image is more than `most` times
/// the other: scaled by its shorter side, such an image could be enormous.
void check_aspect(ImageSize image, const std::string& name, int most = kMaxAspect);

/// Returns the scale at which to decode a window: the least of 1, 2, 4 and 8 eighths with which its shorter
/// side is at least `wanted_side`, else 8; 8 also if `wanted_side` is 0.
int eighths_for(const ImageWindow& window, int wanted_side);

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

}  // namespace convnet
