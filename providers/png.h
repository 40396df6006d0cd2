// Decodes PNG images, for decode.cpp, with libspng.
#pragma once

#include <string>
#include <string_view>

#include "providers/decode.h"

namespace convnet {

constexpr std::string_view kPngMagic{"\x89PNG\r\n\x1a\n", 8};

/// Decodes the window that `choose` returns, or without it the whole image, of a PNG that begins with
/// kPngMagic. Rows below the window are not decompressed, unless the PNG is interlaced; what is wrong with
/// them is not noticed, but lengths and checksums of all chunks are compared. Throws as decode_window() does.
DecodedImage decode_png(std::string_view bytes, const std::string& name, const ChooseWindow& choose);

}  // namespace convnet
