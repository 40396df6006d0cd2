// Decides what a net sees of a provider's images: random crops and mirror images in training, the centre in
// tests, and pixels in units of their standard deviation. The part that is seen is chosen here; it is cut out
// where the images are used (MatrixInfo::whole).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "providers/provider.h"

namespace convnet {

/// `whole`, a provider of images, with what the options say done by finish(). In training with crops, the
/// square's origin is uniform in 0…2·floor((side + 2·crop_pad − inner_size) / 2) on each axis of the padded
/// image; an image is mirrored with probability 1/2: with crops unless Flip::off, without them only if
/// Flip::on. Else the centre is cut out, or with `multiview` nine squares: origins at 0, b and 2b on each
/// axis, b the centre's, row by row, and every other matrix has its values nine times as well. What is drawn
/// for an image depends on the seed, its epoch, batch and place in the batch alone. Throws InputError naming
/// the option that does not fit the images.
std::unique_ptr<StoredProvider> make_cropped_provider(std::unique_ptr<StoredProvider> whole,
                                                      const ImageOptions& options, std::uint64_t seed);

/// Returns what a net sees of the images in matrix 0, of `info.dims` and `info.type`, cut out of whole ones.
std::vector<std::byte> cut_images(const DataBatch& batch, const MatrixInfo& info);

/// Returns what a net sees of image `image` of matrix 0, before a mean is subtracted: `info.dims` values.
std::vector<float> seen_pixels(const DataBatch& batch, const MatrixInfo& info, std::int64_t image);

}  // namespace convnet
