#include "convnet/data/pixel_sums.h"

#include <cmath>

#include "tests/catch.h"

using namespace convnet;

namespace {

using Colour = std::array<std::uint8_t, 3>;

/// A square of one colour, with some bytes after each row that do not belong to it.
void add(PixelSums& sums, Colour colour) {
  const auto size = static_cast<std::size_t>(sums.size);
  std::vector<std::uint8_t> pixels;
  for (std::size_t y = 0; y < size; ++y) {
    for (std::size_t x = 0; x < size; ++x) pixels.insert(pixels.end(), colour.begin(), colour.end());
    pixels.insert(pixels.end(), 5, 77);
  }
  sums.add(pixels.data(), size * 3 + 5);
}

}  // namespace

TEST_CASE("the mean image is by colour, row and column", "[pixel_sums]") {
  PixelSums sums(2);
  const std::vector<std::uint8_t> one = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<std::uint8_t> other = {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 255};
  sums.add(one.data(), 6);
  sums.add(other.data(), 6);
  CHECK(sums.images == 2);
  CHECK(sums.mean_image() == std::vector<float>{2, 5, 8, 11, 3, 6, 9, 12, 4, 7, 10, 133.5F});
}

TEST_CASE("colours that vary along one line have one component", "[pixel_sums]") {
  PixelSums sums(3);
  for (int step : {-2, -1, 1, 2})
    add(sums, {static_cast<std::uint8_t>(100 + 6 * step), static_cast<std::uint8_t>(100 + 3 * step),
               static_cast<std::uint8_t>(100 - 2 * step)});
  const ColorPca pca = sums.color_pca();
  CHECK(pca.deviations[0] ==
        Approx(7 * std::sqrt(2.5)).epsilon(1e-9));  // |(6, 3, -2)| = 7, variance of steps 2.5
  CHECK(pca.deviations[1] == Approx(0).margin(1e-5));
  CHECK(pca.deviations[2] == Approx(0).margin(1e-5));
  CHECK(pca.vectors[0][0] == Approx(6.0 / 7).epsilon(1e-9));
  CHECK(pca.vectors[1][0] == Approx(3.0 / 7).epsilon(1e-9));
  CHECK(pca.vectors[2][0] == Approx(-2.0 / 7).epsilon(1e-9));
}

TEST_CASE("components diagonalise the covariance of the colours", "[pixel_sums]") {
  const std::vector<Colour> colours = {
      {10, 200, 30}, {90, 10, 100}, {250, 40, 0}, {7, 7, 7}, {128, 200, 255}};
  PixelSums sums(4);
  for (const Colour& colour : colours) add(sums, colour);
  const ColorPca pca = sums.color_pca();
  CHECK(pca.deviations[0] > pca.deviations[1]);
  CHECK(pca.deviations[1] > pca.deviations[2]);
  std::array<double, 3> mean{};
  for (const Colour& colour : colours)
    for (std::size_t c = 0; c < 3; ++c) mean[c] += colour[c] / 5.0;
  for (std::size_t i = 0; i < 3; ++i) {
    double largest = 0;
    for (std::size_t c = 0; c < 3; ++c)
      if (std::abs(pca.vectors[c][i]) > std::abs(largest)) largest = pca.vectors[c][i];
    CHECK(largest > 0);
    for (std::size_t j = 0; j < 3; ++j) {
      // The projections of the colours on two of the vectors: their covariance.
      double covariance = 0, product = 0;
      for (const Colour& colour : colours) {
        double x = 0, y = 0;
        for (std::size_t c = 0; c < 3; ++c) {
          x += (colour[c] - mean[c]) * pca.vectors[c][i];
          y += (colour[c] - mean[c]) * pca.vectors[c][j];
        }
        covariance += x * y / 5;
      }
      for (std::size_t c = 0; c < 3; ++c) product += pca.vectors[c][i] * pca.vectors[c][j];
      CAPTURE(i, j);
      CHECK(covariance == Approx(i == j ? pca.deviations[i] * pca.deviations[i] : 0).margin(1e-7));
      CHECK(product == Approx(i == j ? 1 : 0).margin(1e-12));
    }
  }
}

TEST_CASE("images in any order and grouping have the same sums", "[pixel_sums]") {
  PixelSums all(2), first(2), second(2);
  for (std::uint8_t i = 0; i < 10; ++i) {
    const Colour colour = {i, static_cast<std::uint8_t>(200 - i), static_cast<std::uint8_t>(i * 25)};
    add(all, colour);
    add(i % 3 == 0 ? first : second, colour);
  }
  second.add(first);
  CHECK(second.images == all.images);
  CHECK(second.pixels == all.pixels);
  CHECK(second.products == all.products);
}
