// Decodes JPEGs, for decode.cpp, and encodes them, with libjpeg-turbo.
#pragma once

#include <string>
#include <string_view>

#include "providers/decode.h"

namespace convnet {

/// Does what decode_image() does, for bytes that begin like a JPEG.
DecodedImage decode_jpeg(std::string_view bytes, const std::string& name, int wanted_side);

/// Returns a JPEG file. `quality` is 1 to 100; colours have half the resolution of the brightness.
std::string encode_jpeg(const DecodedImage& image, int quality = 95);

}  // namespace convnet
