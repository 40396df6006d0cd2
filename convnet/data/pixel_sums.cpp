#include "convnet/data/pixel_sums.h"

#include <algorithm>
#include <cstddef>

namespace convnet {

PixelSums::PixelSums(int side) : size(side), pixels(static_cast<std::size_t>(side * side) * 3, 0) {}

void PixelSums::add(const DecodedImage& square) {
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] += square.pixels[i];
  colors.add(square);
  ++images;
}

std::vector<float> PixelSums::mean_image() const {
  const std::size_t plane = pixels.size() / 3;
  const double count = static_cast<double>(std::max<std::uint64_t>(1, images));
  std::vector<float> mean(pixels.size());
  for (std::size_t i = 0; i < pixels.size(); ++i)
    mean[i % 3 * plane + i / 3] = static_cast<float>(static_cast<double>(pixels[i]) / count);
  return mean;
}

}  // namespace convnet
