#include "providers/color_pca.h"

#include <cmath>

#include "tests/catch.h"

using namespace convnet;

TEST_CASE("components diagonalise the covariance of the colours", "[color_pca]") {
  const DecodedImage image = {1, 5, {10, 200, 30, 90, 10, 100, 250, 40, 0, 7, 7, 7, 128, 200, 255}};
  ColorSums sums;
  sums.add(image);
  const std::vector<float> pca = color_pca(sums);
  REQUIRE(pca.size() == 12);
  CHECK(pca[0] > pca[1]);
  CHECK(pca[1] > pca[2]);
  std::array<double, 3> mean{};
  for (std::size_t p = 0; p < 15; ++p) mean[p % 3] += image.pixels[p] / 5.0;
  const auto axis = [&](std::size_t c, std::size_t k) { return static_cast<double>(pca[3 + 3 * c + k]); };
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(axis(0, i) + axis(1, i) + axis(2, i) > 0);
    for (std::size_t j = 0; j < 3; ++j) {
      // The covariance of the colours' projections on two of the axes.
      double covariance = 0, product = 0;
      for (std::size_t p = 0; p < 15; p += 3) {
        double x = 0, y = 0;
        for (std::size_t c = 0; c < 3; ++c) {
          x += (image.pixels[p + c] - mean[c]) * axis(c, i);
          y += (image.pixels[p + c] - mean[c]) * axis(c, j);
        }
        covariance += x * y / 5;
      }
      for (std::size_t c = 0; c < 3; ++c) product += axis(c, i) * axis(c, j);
      CAPTURE(i, j);
      const double variance = std::pow(static_cast<double>(pca[i]), 2);
      CHECK(covariance == Approx(i == j ? variance : 0).epsilon(1e-4).margin(0.05));
      CHECK(product == Approx(i == j ? 1 : 0).margin(1e-6));
    }
  }
}
