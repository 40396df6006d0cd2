// The principal components of the colours of images.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "providers/decode.h"

namespace convnet {

/// Sums over pixels. They are integers, so that their order does not matter.
struct ColorSums {
  std::int64_t pixels = 0;
  std::array<std::int64_t, 3> sums = {};
  std::array<std::int64_t, 6> products = {};  ///< rr rg rb gg gb bb

  void add(const DecodedImage& image);
  void add(const ColorSums& other);
  /// Returns the covariance of the colours, (3,3).
  std::array<double, 9> covariance() const;
};

/// Returns (4,3): a row with the standard deviations of the principal components, the largest first, in units
/// of 0 to 255; then the components as columns, each with a positive sum.
std::vector<float> color_pca(const ColorSums& colors);

/// Returns the standard deviations of red, green and blue; 1 for a colour that is constant.
std::vector<float> color_deviations(const ColorSums& colors);

}  // namespace convnet
