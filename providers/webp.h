// Decodes WebP images, for decode.cpp, with libwebp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// Returns whether the bytes begin like a WebP file.
bool is_webp(std::string_view bytes);

/// The size of an image.
struct WebpSize {
  std::int64_t width = 0, height = 0;
};
/// Reads the size. Throws InputError, whose message begins with `name`, if the bytes are no WebP image, or if
/// it is animated.
WebpSize read_webp_size(std::string_view bytes, const std::string& name);

/// Returns the pixels, (H,W,4): red, green, blue and opacity. Throws InputError if the image is damaged or
/// cut off. read_webp_size() must have accepted it.
std::vector<std::uint8_t> decode_webp(std::string_view bytes, const WebpSize& size, const std::string& name);

/// Returns the orientation of the photograph (orientation.h); 1 if the file, for which is_webp() holds, does
/// not say.
int webp_orientation(std::string_view bytes);

}  // namespace convnet
