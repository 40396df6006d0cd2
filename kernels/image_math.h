// Arithmetic of the image layers, compiled for host and device: Gaussian weights, bilinear coordinates,
// random scales, colours.
#pragma once

#include <cmath>
#include <cstdint>

#include "convnet/base/host_device.h"
#include "convnet/base/philox.h"

namespace convnet {

/// Returns the weight of a Gaussian filter at `distance` pixels from its middle, where it is 1.
CONVNET_HD inline double gaussian(std::int64_t distance, float stdev) {
  const double deviations = static_cast<double>(distance) / static_cast<double>(stdev);
  return std::exp(-deviations * deviations / 2);
}

/// Returns the sum of all weights of a filter of `size` taps (odd).
CONVNET_HD inline double gaussian_sum(std::int64_t size, float stdev) {
  double sum = 1;
  for (std::int64_t d = 1; d <= size / 2; ++d) sum += 2 * gaussian(d, stdev);
  return sum;
}

CONVNET_HD inline float blend(float a, float b, float weight) { return (1 - weight) * a + weight * b; }

/// Along one side of an image, an output pixel is (1 - weight) * first + weight * second. These are the
/// indices of the two source pixels, and the weight.
struct BilinearTap {
  std::int64_t first = 0, second = 0;
  float weight = 0;
};

/// Returns the tap of output pixel i of `outputs`, which are `scale` input pixels apart and centred on the
/// image of `side` pixels. Coordinates are clamped to [0, side - 1.01], or to 0 if the side is one pixel.
CONVNET_HD inline BilinearTap bilinear_tap(std::int64_t i, std::int64_t side, std::int64_t outputs,
                                           double scale) {
  const double first_at = (static_cast<double>(side) - static_cast<double>(outputs) * scale) / 2;
  const double last = side > 1 ? static_cast<double>(side) - 1.01 : 0;
  double at = static_cast<double>(i) * scale + first_at;
  at = at < 0 ? 0 : (at > last ? last : at);
  const auto first = static_cast<std::int64_t>(at);
  return {first, first + 1 < side ? first + 1 : first, static_cast<float>(at - static_cast<double>(first))};
}

/// The random scale and crop of one image: it is resized by `factor` to `side` x `side` pixels, and the crop
/// starts at (y, x) of these.
struct ScaleDraw {
  double factor = 1;
  std::int64_t side = 0, y = 0, x = 0;
};

/// Returns 1 + 4 + 9 + ... + n^2.
CONVNET_HD inline std::int64_t sum_of_squares(std::int64_t n) { return n * (n + 1) * (2 * n + 1) / 6; }

/// Returns the draw of RandomScale (ops/images.h) for image `image` in minibatch `iteration`. The random
/// words of elements 0 to 3 decide s, factor, y and x.
CONVNET_HD inline ScaleDraw draw_scale(std::int64_t side, std::int64_t target, float max_scale,
                                       std::uint64_t key, std::uint64_t iteration, std::uint32_t image) {
  double uniform[4] = {};
  for (std::uint32_t i = 0; i < 4; ++i)
    uniform[i] = static_cast<double>(element_random(key, iteration, image, i)) * 0x1p-32;
  // max_scale was rounded from a decimal: 6 / 1.2F is a little less than 5.
  const double smallest = static_cast<double>(side) / static_cast<double>(max_scale) * (1 + 1e-7);
  const std::int64_t scales = side - static_cast<std::int64_t>(smallest) + 1;
  // The first s at which the cumulative distribution of (s+1)^2 exceeds the draw.
  const double drawn = uniform[0] * static_cast<double>(sum_of_squares(scales));
  std::int64_t s = 0, last = scales - 1;
  while (s < last) {
    const std::int64_t middle = (s + last) / 2;
    if (static_cast<double>(sum_of_squares(middle + 1)) > drawn)
      last = middle;
    else
      s = middle + 1;
  }
  const auto size = static_cast<double>(target + s);
  const double low = static_cast<double>(side) / (1 + size) > 1 ? static_cast<double>(side) / (1 + size) : 1;
  // The interval is empty where size exceeds the side: then the image is as it is.
  const double high = static_cast<double>(side) / size > low ? static_cast<double>(side) / size : low;
  ScaleDraw draw;
  draw.factor = low + uniform[1] * (high - low);
  draw.side = static_cast<std::int64_t>(static_cast<double>(side) / draw.factor);
  if (draw.side < target) draw.side = target;  // rounding
  const auto places = static_cast<double>(draw.side - target + 1);
  draw.y = static_cast<std::int64_t>(uniform[2] * places);
  draw.x = static_cast<std::int64_t>(uniform[3] * places);
  return draw;
}

struct Color {
  float value[3];
};

CONVNET_HD inline Color rgb_to_yuv(float r, float g, float b) {
  return {{0.2126F * r + 0.7152F * g + 0.0722F * b, -0.09991F * r - 0.33609F * g + 0.436F * b,
           0.615F * r - 0.55861F * g - 0.05639F * b}};
}

/// Returns the cube root, or for dark colours the line that continues it with the same slope.
CONVNET_HD inline float lab_curve(float t) {
  constexpr float kDark = 216.0F / 24389;  // (6/29)^3
  return t > kDark ? std::cbrt(t) : t * (841.0F / 108) + 4.0F / 29;
}

/// Converts RGB in [0,1] to CIE L*a*b*; `center` subtracts 50 from L*.
CONVNET_HD inline Color rgb_to_lab(float r, float g, float b, bool center) {
  const float x = lab_curve(0.49F * r + 0.31F * g + 0.2F * b);
  const float y = lab_curve(0.17697F * r + 0.8124F * g + 0.01063F * b);
  const float z = lab_curve(0.01F * g + 0.99F * b);
  return {{116 * y - (center ? 66.0F : 16.0F), 500 * (x - y), 200 * (y - z)}};
}

}  // namespace convnet
