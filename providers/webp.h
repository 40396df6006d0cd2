// Decodes WebP images, for decode.cpp, with libwebp.
#pragma once

#include <string>
#include <string_view>

#include "providers/decode.h"

namespace convnet {

/// Returns whether the bytes begin like a WebP file.
bool is_webp(std::string_view bytes);

/// Decodes the window that `choose` returns, or without it the whole image, of a file for which is_webp()
/// holds. The library cuts and scales while it decodes. Throws as decode_window() does, also if the image is
/// animated.
DecodedImage decode_webp(std::string_view bytes, const std::string& name, const ChooseWindow& choose,
                         int wanted_side);

/// Returns the orientation of the photograph (orientation.h); 1 if the file, for which is_webp() holds, does
/// not say.
int webp_orientation(std::string_view bytes);

}  // namespace convnet
