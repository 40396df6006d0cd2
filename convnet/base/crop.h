// Images that travel whole, each with the part of it that is seen.
#pragma once

#include <cstdint>

#include "convnet/base/host_device.h"

namespace convnet {

/// Follows the pixels of an image: where the part that is seen has its origin, and whether it is mirrored
/// left to right. It may leave the image, for zeros around it.
struct Crop {
  std::int32_t y = 0, x = 0;
  std::int32_t mirror = 0;  ///< 0 or 1
};

/// Where an image's Crop stands behind so many bytes of pixels.
CONVNET_HD constexpr std::int64_t crop_offset(std::int64_t pixel_bytes) {
  constexpr std::int64_t kAlignment = alignof(Crop);
  return (pixel_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Bytes of an image with its Crop.
constexpr std::int64_t cropped_image_bytes(std::int64_t pixel_bytes) {
  return crop_offset(pixel_bytes) + static_cast<std::int64_t>(sizeof(Crop));
}

/// Height and width of images and of what is seen of them.
struct CropSizes {
  std::int64_t height = 0, width = 0, seen_height = 0, seen_width = 0;

  /// The pixel of a channel's plane that is seen at (y, x); -1 for a zero around it.
  CONVNET_HD std::int64_t pixel(const Crop& crop, std::int64_t y, std::int64_t x) const {
    const std::int64_t row = crop.y + y;
    const std::int64_t column = crop.x + (crop.mirror != 0 ? seen_width - 1 - x : x);
    return row < 0 || row >= height || column < 0 || column >= width ? -1 : row * width + column;
  }
};

}  // namespace convnet
