// Data sets of photographs: JPEGs and others of any size, decoded when they are read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "providers/provider.h"

namespace convnet {

class ImageSource;

/// Returns the usual size of images for crops of this side, in pixels: 256 for 224.
constexpr std::int64_t size_around(std::int64_t inner_size) { return (inner_size * 8 + 3) / 7; }

/// Opens the data set at `path`, which is anything that open_image_source() reads.
/// - Matrix 0 holds images (C,N,N), where C is ImageOptions::channels() and N is --inner-size, or the image
///   size without it. Matrix 1 holds a label for each image: if the image has several, a random one in
///   training and the first one in tests; -1 if it has none. Matrix 2 has a number for every class, 1 if the
///   image has this label, else 0.
/// - Images are scaled so that their shorter side is the image size: --image-size, else what the data set
///   says, else 8/7 of --inner-size, rounded, else 256.
/// - Training crops a square at a position that is uniform on both axes and, unless Flip::off, mirrors half
///   of the images. With random_resized_crop it instead scales to (N,N) a random_window() with at least that
///   fraction of the area and a ratio of 3/4 to 4/3, or if none fits, the largest window of such a ratio in
///   the middle. Training images are erased and mixed as augment.h says.
/// - Tests see the centre, or with multiview the four corners and the centre, then these mirrored.
/// - With `shuffled`, training sees the images of that range in another order each epoch.
/// Everything random about an image depends only on the seed, epoch, batch and index in the batch. Throws
/// InputError, also if `shuffled` is given for cuda-convnet2's batches, or RunError.
std::unique_ptr<Provider> make_image_provider(const std::string& path, const ImageOptions& options,
                                              std::uint64_t seed,
                                              const std::optional<BatchRange>& shuffled = {});

/// Makes the same provider for images from another source; messages call it `path`.
std::unique_ptr<Provider> make_image_provider(std::unique_ptr<ImageSource> source, const std::string& path,
                                              const ImageOptions& options, std::uint64_t seed,
                                              const std::optional<BatchRange>& shuffled = {});

/// An option that only provider image has.
struct OptionOfImage {
  const char* name;  ///< name on the command line, without dashes
  bool (*is_on)(const ImageOptions& options);
};
const std::vector<OptionOfImage>& options_of_image();

}  // namespace convnet
