#include "convnet/data/pixel_sums.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace convnet {
namespace {

using Matrix3 = std::array<std::array<double, 3>, 3>;

/// Makes a[p][q] zero by a rotation of the axes p and q, which the columns of `v` follow.
void rotate(Matrix3& a, Matrix3& v, std::size_t p, std::size_t q) {
  if (a[p][q] == 0) return;
  const double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
  const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
  const double c = 1 / std::sqrt(t * t + 1), s = t * c;
  const auto turn = [&](double& x, double& y) {
    const double old = x;
    x = c * old - s * y;
    y = s * old + c * y;
  };
  for (auto& row : a) turn(row[p], row[q]);
  for (std::size_t k = 0; k < 3; ++k) turn(a[p][k], a[q][k]);
  for (auto& row : v) turn(row[p], row[q]);
}

}  // namespace

PixelSums::PixelSums(int side) : size(side), pixels(static_cast<std::size_t>(side * side) * 3, 0) {}

void PixelSums::add(const std::uint8_t* image, std::size_t row_bytes) {
  const auto row_values = static_cast<std::size_t>(size) * 3;
  for (std::size_t y = 0; y < static_cast<std::size_t>(size); ++y, image += row_bytes) {
    std::uint64_t* const sums = pixels.data() + y * row_values;
    for (std::size_t i = 0; i < row_values; ++i) sums[i] += image[i];
    // A row's sums fit: 255² · 66,051 < 2³².
    std::array<std::uint32_t, 6> row = {};
    for (std::size_t i = 0; i < row_values; i += 3) {
      const std::uint32_t r = image[i], g = image[i + 1], b = image[i + 2];
      row[0] += r * r;
      row[1] += r * g;
      row[2] += r * b;
      row[3] += g * g;
      row[4] += g * b;
      row[5] += b * b;
    }
    for (std::size_t i = 0; i < 6; ++i) products[i] += row[i];
  }
  ++images;
}

void PixelSums::add(const PixelSums& others) {
  images += others.images;
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] += others.pixels[i];
  for (std::size_t i = 0; i < products.size(); ++i) products[i] += others.products[i];
}

std::vector<float> PixelSums::mean_image() const {
  const std::size_t plane = pixels.size() / 3;
  const double count = static_cast<double>(std::max<std::uint64_t>(1, images));
  std::vector<float> mean(pixels.size());
  for (std::size_t i = 0; i < pixels.size(); ++i)
    mean[i % 3 * plane + i / 3] = static_cast<float>(static_cast<double>(pixels[i]) / count);
  return mean;
}

ColorPca PixelSums::color_pca() const {
  const double count =
      static_cast<double>(std::max<std::uint64_t>(1, images)) * static_cast<double>(pixels.size() / 3);
  std::array<double, 3> mean{};
  for (std::size_t c = 0; c < 3; ++c) {
    std::uint64_t sum = 0;
    for (std::size_t i = c; i < pixels.size(); i += 3) sum += pixels[i];
    mean[c] = static_cast<double>(sum) / count;
  }
  Matrix3 a{}, v{};
  for (std::size_t i = 0, at = 0; i < 3; ++i) {
    v[i][i] = 1;
    for (std::size_t j = i; j < 3; ++j, ++at)
      a[i][j] = a[j][i] = static_cast<double>(products[at]) / count - mean[i] * mean[j];
  }
  // Cyclic Jacobi: the error left falls quadratically, and more than six sweeps are never needed for 3x3.
  for (int sweep = 0; sweep < 12; ++sweep) {
    rotate(a, v, 0, 1);
    rotate(a, v, 0, 2);
    rotate(a, v, 1, 2);
  }
  std::array<std::size_t, 3> order = {0, 1, 2};
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t x, std::size_t y) { return a[x][x] > a[y][y]; });
  ColorPca pca;
  for (std::size_t k = 0; k < 3; ++k) {
    const std::size_t from = order[k];
    pca.deviations[k] = std::sqrt(std::max(0.0, a[from][from]));
    // An eigenvector may point either way: its largest part is positive, so that there is one answer.
    double largest = v[0][from];
    for (const auto& row : v)
      if (std::abs(row[from]) > std::abs(largest)) largest = row[from];
    for (std::size_t c = 0; c < 3; ++c) pca.vectors[c][k] = largest < 0 ? -v[c][from] : v[c][from];
  }
  return pca;
}

}  // namespace convnet
