// Images that are copied whole to the device, each with the part of it that the net sees.
#pragma once

#include <cstdint>

#include "convnet/base/host_device.h"

namespace convnet {

/// The part of an image that the net sees, stored behind the image's pixels: its origin in pixels, and
/// whether it is mirrored left to right. The part may extend beyond the image; pixels there are zero.
struct Crop {
  std::int32_t y = 0, x = 0;
  std::int32_t mirror = 0;  ///< 0 or 1
};

/// Returns the offset in bytes of the Crop of an image whose pixels take `pixel_bytes`.
CONVNET_HD constexpr std::int64_t crop_offset(std::int64_t pixel_bytes) {
  constexpr std::int64_t kAlignment = alignof(Crop);
  return (pixel_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Returns the size in bytes of an image with its Crop.
constexpr std::int64_t cropped_image_bytes(std::int64_t pixel_bytes) {
  return crop_offset(pixel_bytes) + static_cast<std::int64_t>(sizeof(Crop));
}

/// Height and width, in pixels, of images and of the parts that the net sees.
struct CropSizes {
  std::int64_t height = 0, width = 0, seen_height = 0, seen_width = 0;

  /// Returns the index in a channel's plane of the pixel seen at (y, x); -1 for a zero outside the image.
  CONVNET_HD std::int64_t pixel(const Crop& crop, std::int64_t y, std::int64_t x) const {
    const std::int64_t row = crop.y + y;
    const std::int64_t column = crop.x + (crop.mirror != 0 ? seen_width - 1 - x : x);
    return row < 0 || row >= height || column < 0 || column >= width ? -1 : row * width + column;
  }
};

}  // namespace convnet
