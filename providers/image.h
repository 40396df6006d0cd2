// Data sets of photographs: JPEGs and others of any size, decoded as they are asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "providers/provider.h"

namespace convnet {

class ImageSource;

/// Opens what `path` is (image_source.h). Matrix 0 are images (3,N,N), N being --inner-size, or the image
/// size without it; 1 a label of each image, by lot in training if it has several, else the first, -1 if it
/// has none; 2 zeros and ones, a number for every class. Images are scaled so that their shorter side is the
/// image size (default: what the data set says; else 8/7 of --inner-size, rounded; else 256). Training cuts a
/// square from a place that is uniform on both axes and, unless Flip::off, mirrors half of them; tests the
/// centre, or with multiview the four corners and the centre, then these mirrored. With random_resized_crop
/// training scales a random_window() of the image to (N,N), of at least that area and a ratio of 3/4 to 4/3,
/// or where none fits, the largest one in the middle of such a ratio; training images are erased and mixed
/// as augment.h says. With `shuffled`, training sees the images of that range in another order each epoch.
/// What is drawn for an image depends on the seed, epoch, batch and place in the batch alone. Throws
/// InputError, also for `shuffled` images of cuda-convnet2's batches; RunError.
std::unique_ptr<Provider> make_image_provider(const std::string& path, const ImageOptions& options,
                                              std::uint64_t seed,
                                              const std::optional<BatchRange>& shuffled = {});

/// The same of images from elsewhere; `path` names them in messages.
std::unique_ptr<Provider> make_image_provider(std::unique_ptr<ImageSource> source, const std::string& path,
                                              const ImageOptions& options, std::uint64_t seed,
                                              const std::optional<BatchRange>& shuffled = {});

}  // namespace convnet
