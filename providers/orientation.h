// How a camera was held: photographs are stored as the sensor saw them, with a note on how to turn them.
#pragma once

#include <string_view>

#include "providers/decode.h"

namespace convnet {

/// The orientation, 1 to 8, that a block of EXIF data (the content of a JPEG's marker APP1) gives for the
/// image; 1, which leaves it as it is, where the block is damaged or says nothing. Source: EXIF 2.3, tag
/// 0x0112.
int exif_orientation(std::string_view block);

/// The image turned and mirrored as `orientation` says: stored rows are the right or left border for 5 to 8,
/// whose sides change places.
DecodedImage upright(DecodedImage image, int orientation);

}  // namespace convnet
