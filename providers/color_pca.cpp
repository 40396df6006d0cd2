#include "providers/color_pca.h"

#include <algorithm>
#include <cmath>

namespace convnet {

void ColorSums::add(const DecodedImage& image) {
  for (std::size_t i = 0; i + 2 < image.pixels.size(); i += 3) {
    const std::int64_t r = image.pixels[i], g = image.pixels[i + 1], b = image.pixels[i + 2];
    sums[0] += r;
    sums[1] += g;
    sums[2] += b;
    products[0] += r * r;
    products[1] += r * g;
    products[2] += r * b;
    products[3] += g * g;
    products[4] += g * b;
    products[5] += b * b;
  }
  pixels += static_cast<std::int64_t>(image.pixels.size() / 3);
}

void ColorSums::add(const ColorSums& other) {
  pixels += other.pixels;
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += other.sums[i];
  for (std::size_t i = 0; i < products.size(); ++i) products[i] += other.products[i];
}

std::array<double, 9> ColorSums::covariance() const {
  const auto n = static_cast<double>(std::max<std::int64_t>(1, pixels));
  constexpr std::array<std::size_t, 9> product = {0, 1, 2, 1, 3, 4, 2, 4, 5};
  std::array<double, 9> out = {};
  for (std::size_t i = 0; i < 9; ++i)
    out[i] = static_cast<double>(products[product[i]]) / n -
             static_cast<double>(sums[i / 3]) / n * (static_cast<double>(sums[i % 3]) / n);
  return out;
}

std::vector<float> color_pca(const ColorSums& colors) {
  // Jacobi's method: rotations in the plane of two axes make a's elements beside the diagonal vanish.
  std::array<double, 9> a = colors.covariance(), v = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  constexpr int sweeps = 30;
  for (int sweep = 0; sweep < sweeps; ++sweep)
    for (std::size_t p = 0; p < 2; ++p)
      for (std::size_t q = p + 1; q < 3; ++q) {
        if (a[3 * p + q] == 0) continue;
        const double theta = (a[4 * q] - a[4 * p]) / (2 * a[3 * p + q]);
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        const auto rotate = [&](double& x, double& y) {
          const double old = x;
          x = c * old - s * y;
          y = s * old + c * y;
        };
        for (std::size_t k = 0; k < 3; ++k) rotate(a[3 * k + p], a[3 * k + q]);
        for (std::size_t k = 0; k < 3; ++k) rotate(a[3 * p + k], a[3 * q + k]);
        for (std::size_t k = 0; k < 3; ++k) rotate(v[3 * k + p], v[3 * k + q]);
      }
  std::array<std::size_t, 3> order = {0, 1, 2};
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t i, std::size_t j) { return a[4 * i] > a[4 * j]; });
  std::vector<float> out(12);
  for (std::size_t k = 0; k < 3; ++k) {
    const std::size_t from = order[k];
    const double sign = v[from] + v[3 + from] + v[6 + from] < 0 ? -1 : 1;
    out[k] = static_cast<float>(std::sqrt(std::max(0.0, a[4 * from])));
    for (std::size_t c = 0; c < 3; ++c) out[3 + 3 * c + k] = static_cast<float>(sign * v[3 * c + from]);
  }
  return out;
}

std::vector<float> color_deviations(const ColorSums& colors) {
  const std::array<double, 9> covariance = colors.covariance();
  std::vector<float> out;
  for (std::size_t c = 0; c < 3; ++c) {
    const auto deviation = static_cast<float>(std::sqrt(std::max(0.0, covariance[4 * c])));
    out.push_back(deviation > 0 ? deviation : 1);
  }
  return out;
}

}  // namespace convnet
