// Decodes BMP images, for decode.cpp, with stb_image.
#pragma once

#include <string>
#include <string_view>

#include "providers/decode.h"

namespace convnet {

/// Returns whether the bytes begin like a BMP file.
bool is_bmp(std::string_view bytes);

/// Decodes a BMP, for which is_bmp() holds. Throws as decode_image() does.
DecodedImage decode_bmp(std::string_view bytes, const std::string& name);

}  // namespace convnet
