// The principal components of the colours of images.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "providers/decode.h"

namespace convnet {

/// Sums over pixels, exact in any order of adding.
struct ColorSums {
  std::int64_t pixels = 0;
  std::array<std::int64_t, 3> sums = {};
  std::array<std::int64_t, 6> products = {};  ///< rr rg rb gg gb bb

  void add(const DecodedImage& image);
  void add(const ColorSums& other);
  /// The covariance of the colours, (3,3).
  std::array<double, 9> covariance() const;
};

/// (4,3): standard deviations of the principal components, the largest first, then the components as columns,
/// each with a positive sum. In units of 0 to 255.
std::vector<float> color_pca(const ColorSums& colors);

/// Standard deviations of red, green and blue; 1 for one that does not change.
std::vector<float> color_deviations(const ColorSums& colors);

}  // namespace convnet
