// Pictures drawn for tests, and files of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "providers/decode.h"

namespace convnet::test_images {

/// Smooth coloured waves, others for each `kind`.
DecodedImage waves(int height, int width, int kind);

// Files of stb_image_write and, for the last, libjpeg-turbo. `values` are (H,W,channels).
std::string png(const DecodedImage& image);
std::string png(int height, int width, int channels, const std::vector<std::uint8_t>& values);
std::string bmp(const DecodedImage& image);
/// Encodes a JPEG of one channel (grey) or four (CMYK unchanged, with Adobe's marker).
std::string jpeg(int height, int width, int channels, const std::vector<std::uint8_t>& values);
/// Encodes a JPEG whose colours have a resolution lower by these factors than that of the brightness.
std::string jpeg_of_colors(const DecodedImage& image, int factor_x, int factor_y, bool progressive);
/// Encodes a progressive JPEG of one channel with a scan for the means and `scans` for some frequencies, one
/// for each up to the last.
std::string progressive_jpeg(int height, int width, const std::vector<std::uint8_t>& values, int scans);

}  // namespace convnet::test_images
