// Decodes JPEGs with libjpeg-turbo, for decode.cpp.
#pragma once

#include <string>
#include <string_view>

#include "providers/decode.h"

namespace convnet {

/// Does what decode_image() does, for bytes that begin like a JPEG.
DecodedImage decode_jpeg(std::string_view bytes, const std::string& name, int wanted_side);

}  // namespace convnet
