// Decodes JPEGs, for decode.cpp, and encodes them, with libjpeg-turbo.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "providers/decode.h"

namespace convnet {

/// Returns the most scans of a JPEG of so many pixels that is decoded. A scan is a pass over the whole image,
/// which may take no more than some bytes of the file. Progressive files have about ten.
std::int64_t most_scans(std::int64_t pixels);

/// Does what decode_image() does, or if `choose` is not empty, decode_window(), for bytes that begin like a
/// JPEG.
DecodedImage decode_jpeg(std::string_view bytes, const std::string& name, const ChooseWindow& choose,
                         int wanted_side);

/// Returns a JPEG file. `quality` is 1 to 100; colours have half the resolution of the brightness.
std::string encode_jpeg(const DecodedImage& image, int quality = 95);

}  // namespace convnet
