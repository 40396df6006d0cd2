// The orientation of photographs: files store them as the sensor saw them, and note how the camera was held.
#pragma once

#include <string_view>

#include "providers/decode.h"

namespace convnet {

/// Returns the orientation, 1 to 8, in a block of EXIF data: tag 0x0112 of EXIF 2.3. A block is the content
/// of a JPEG's marker APP1, which begins with "Exif\0\0", or of a PNG's chunk eXIf or a WebP's chunk EXIF,
/// which may lack that name. Returns 1, which means upright, if the block is damaged or has no such tag.
int exif_orientation(std::string_view block);

/// Returns the image rotated and mirrored as `orientation` says. Orientations 5 to 8 exchange height and
/// width.
DecodedImage upright(DecodedImage image, int orientation);

/// Returns the size of a stored image after upright().
ImageSize upright_size(ImageSize stored, int orientation);
/// Returns the part of a stored image of size `stored` that upright() shows as `window`.
ImageWindow stored_window(const ImageWindow& window, ImageSize stored, int orientation);

}  // namespace convnet
