// Sums from which the mean image and the principal colours of many images are computed.
#pragma once

#include <cstdint>
#include <vector>

#include "providers/color_pca.h"
#include "providers/decode.h"

namespace convnet {

/// Sums over square images of one size. They are integers, so any order and grouping of images gives the
/// same result.
struct PixelSums {
  /// Makes sums for square images of side `side`.
  explicit PixelSums(int side);

  void add(const DecodedImage& square);
  /// Returns the mean image, (3, size, size).
  std::vector<float> mean_image() const;

  int size;
  std::uint64_t images = 0;
  std::vector<std::uint64_t> pixels;  ///< (size, size, 3)
  ColorSums colors;
};

}  // namespace convnet
