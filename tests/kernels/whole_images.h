// Images that come whole, as LoadImages reads them.
#pragma once

#include <cstring>
#include <vector>

#include "convnet/base/crop.h"
#include "convnet/base/tensor.h"

namespace convnet::test {

/// Pixel p of image i; none is 0.
inline int whole_pixel(std::size_t i, std::int64_t p) {
  return static_cast<int>((static_cast<std::int64_t>(i) * 7 + p) % 255) + 1;
}

/// An image of `pixels` for each crop.
template <class Source>
std::vector<std::byte> whole_images(std::int64_t pixels, const std::vector<Crop>& crops) {
  const std::int64_t pixel_bytes = pixels * static_cast<std::int64_t>(sizeof(Source));
  const std::int64_t image_bytes = cropped_image_bytes(pixel_bytes);
  std::vector<std::byte> bytes(crops.size() * static_cast<std::size_t>(image_bytes));
  std::byte* image = bytes.data();
  for (std::size_t i = 0; i < crops.size(); ++i, image += image_bytes) {
    for (std::int64_t p = 0; p < pixels; ++p) {
      const auto value = static_cast<Source>(whole_pixel(i, p));
      std::memcpy(image + p * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
    }
    std::memcpy(image + crop_offset(pixel_bytes), &crops[i], sizeof(Crop));
  }
  return bytes;
}

}  // namespace convnet::test
