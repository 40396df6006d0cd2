// Chooses the part of a provider's images that a net sees: random crops and mirror images in training, the
// centre in tests. Also divides pixels by their standard deviation. The chosen part is cut out later, where
// the images are used (MatrixInfo::uncropped).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "providers/provider.h"

namespace convnet {

/// Makes a provider of the images of `whole`, cropped and scaled by finish() as the options say.
/// - In training with crops, the origin of the square is uniform on each axis of the padded image, in
///   0…2·floor((side + 2·crop_pad − inner_size) / 2). Images are mirrored with probability 1/2 unless
///   Flip::off.
/// - In training without crops, images are mirrored with probability 1/2 only if Flip::on.
/// - Tests see the centre. With `multiview` they see nine squares, row by row, whose origins are 0, b and 2b
///   on each axis, where b is that of the centre; every other matrix repeats its values nine times.
/// Everything random about an image depends only on the seed and the image's epoch, batch and index in the
/// batch. Throws InputError naming an option that does not fit the images.
std::unique_ptr<StoredProvider> make_cropped_provider(std::unique_ptr<StoredProvider> whole,
                                                      const ImageOptions& options, std::uint64_t seed);

/// Returns the images of matrix 0 as the net sees them, with `info.dims` and `info.type`, cut out of whole
/// ones.
std::vector<std::byte> cut_images(const DataBatch& batch, const MatrixInfo& info);

/// Returns the pixels of image `image` of matrix 0 as the net sees them, with `info.dims`, before a mean is
/// subtracted.
std::vector<float> seen_pixels(const DataBatch& batch, const MatrixInfo& info, std::int64_t image);

}  // namespace convnet
