// The mean image and the principal colours of many images.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace convnet {

/// Principal components of the colours: pixel = mean + Σ_k z_k · deviations[k] · vectors[.][k], z of
/// variance 1.
struct ColorPca {
  std::array<double, 3> deviations{};              ///< descending, in units of pixels (0–255)
  std::array<std::array<double, 3>, 3> vectors{};  ///< unit eigenvectors as columns: [colour][component]
};

/// Sums over RGB images of one size. They are integers: any order and grouping of the images gives the same.
struct PixelSums {
  /// Of squares of side `size`.
  explicit PixelSums(int size);

  /// An image of size x size pixels, RGB interleaved; `row_bytes` from row to row.
  void add(const std::uint8_t* pixels, std::size_t row_bytes);
  void add(const PixelSums& others);

  /// (3, size, size).
  std::vector<float> mean_image() const;
  ColorPca color_pca() const;

  int size;
  std::uint64_t images = 0;
  std::vector<std::uint64_t> pixels;           ///< (size, size, 3)
  std::array<std::uint64_t, 6> products = {};  ///< over all pixels: RR, RG, RB, GG, GB, BB
};

}  // namespace convnet
