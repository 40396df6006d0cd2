#include "tests/providers/test_images.h"

#include <cmath>
#include <cstdio>  // jpeglib.h needs it
#include <cstdlib>

extern "C" {
#include <jpeglib.h>
}

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>

namespace convnet::test_images {
namespace {

void append(void* context, void* data, int size) {
  static_cast<std::string*>(context)->append(static_cast<const char*>(data), static_cast<std::size_t>(size));
}

}  // namespace

DecodedImage waves(int height, int width, int kind) {
  DecodedImage image{height, width, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        image.pixels.push_back(static_cast<std::uint8_t>(
            128 + 100 * std::sin(0.05 * (kind + 1) * x + 0.03 * (c + 1) * y + 2 * c + kind)));
  return image;
}

std::string png(int height, int width, int channels, const std::vector<std::uint8_t>& values) {
  std::string out;
  stbi_write_png_to_func(append, &out, width, height, channels, values.data(), width * channels);
  return out;
}

std::string png(const DecodedImage& image) { return png(image.height, image.width, 3, image.pixels); }

std::string bmp(const DecodedImage& image) {
  std::string out;
  stbi_write_bmp_to_func(append, &out, image.width, image.height, 3, image.pixels.data());
  return out;
}

namespace {

/// Encodes a JPEG; `change` may change the settings.
template <class Change>
std::string encoded(int height, int width, int channels, const std::vector<std::uint8_t>& values,
                    const Change& change) {
  jpeg_error_mgr errors;  // its default ends the test
  jpeg_compress_struct info = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = static_cast<JDIMENSION>(height);
  info.image_width = static_cast<JDIMENSION>(width);
  info.input_components = channels;
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 98, TRUE);
  change(info);
  jpeg_start_compress(&info, TRUE);
  for (int y = 0; y < height; ++y) {
    auto* row = const_cast<JSAMPROW>(values.data() + static_cast<std::ptrdiff_t>(y) * width * channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string out(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return out;
}

}  // namespace

std::string jpeg(int height, int width, int channels, const std::vector<std::uint8_t>& values) {
  return encoded(height, width, channels, values, [](jpeg_compress_struct&) {});
}

std::string jpeg_of_colors(const DecodedImage& image, int factor_x, int factor_y, bool progressive) {
  return encoded(image.height, image.width, 3, image.pixels, [=](jpeg_compress_struct& info) {
    info.comp_info[0].h_samp_factor = factor_x;
    info.comp_info[0].v_samp_factor = factor_y;
    if (progressive) jpeg_simple_progression(&info);
  });
}

std::string progressive_jpeg(int height, int width, const std::vector<std::uint8_t>& values, int scans) {
  constexpr int kLast = 63, kFirstPlane = 9;  // frequencies, and bits of their numbers
  std::vector<jpeg_scan_info> script = {{1, {0}, 0, 0, 0, 0}};
  for (int i = 0; i < scans; ++i) {
    const int frequency = 1 + i % kLast, plane = kFirstPlane - i / kLast;
    script.push_back({1, {0}, frequency, frequency, plane == kFirstPlane ? 0 : plane + 1, plane});
  }
  return encoded(height, width, 1, values, [&](jpeg_compress_struct& info) {
    info.scan_info = script.data();
    info.num_scans = static_cast<int>(script.size());
  });
}

}  // namespace convnet::test_images
