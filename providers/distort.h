// Distortions of the geometry and the colours of training images: TrivialAugment and colour jitter.
#pragma once

#include "convnet/base/philox.h"
#include "providers/decode.h"

namespace convnet {

/// A way to change an image, with a magnitude m. Colours that leave 0 … 255 are clipped. Geometric
/// distortions take the nearest pixel; pixels from beyond the border are black.
enum class Distortion {
  none,
  shear_x,       ///< takes column x + m*(y + 1/2)
  shear_y,       ///< takes row y + m*(x + 1/2)
  translate_x,   ///< takes column x + m
  translate_y,   ///< takes row y + m
  rotate,        ///< by m degrees about the centre, counter-clockwise
  brightness,    ///< multiplies by 1 + m
  saturation,    ///< grey + (1 + m) * (colour - grey), with the grey of the pixel's luma
  contrast,      ///< mean + (1 + m) * (colour - mean), with the mean luma of the image
  sharpness,     ///< smooth + (1 + m) * (colour - smooth), with the mean of 3x3 pixels, the middle five times
  posterize,     ///< keeps the m upper bits
  solarize,      ///< inverts colours of m and above
  autocontrast,  ///< stretches each channel to 0 … 255
  equalize       ///< gives each channel a uniform distribution of values
};
constexpr int kDistortions = 14;

void distort(DecodedImage& image, Distortion kind, double magnitude);

/// A distortion with its magnitude.
struct DrawnDistortion {
  Distortion kind = Distortion::none;
  double magnitude = 0;
};
/// Draws one of the distortions and one of 31 magnitudes, uniformly: TrivialAugment with its wide range
/// (Müller and Hutter, arXiv:2103.10158).
DrawnDistortion draw_distortion(const Philox4x32& random);

/// Changes brightness, contrast and saturation, in random order, by factors that are uniform in
/// [max(0, 1 - strength), 1 + strength].
void jitter_colors(DecodedImage& image, double strength, const Philox4x32& random);

}  // namespace convnet
