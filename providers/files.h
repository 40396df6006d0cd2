// Image files that belong to no data set, prepared as the images of one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "providers/provider.h"

namespace convnet {

/// The data set that files are made to look like.
struct LikeSet {
  std::string provider;              ///< its provider's name
  std::vector<MatrixInfo> matrices;  ///< as its provider described them
  bool has_mean = false;             ///< a mean image of it is subtracted
};

/// Makes a provider of one batch, number 1: the files, JPEG, PNG or BMP, in this order, with label 0. Like
/// the data set of provider "image" they are scaled and cut as it does in tests; like a set of small images
/// they are scaled to its size, the centre of the longer side, and for one channel turned grey. Throws
/// InputError if the set has no images. read() throws InputError naming a file that is no image.
std::unique_ptr<Provider> make_files_provider(std::vector<std::string> files, const LikeSet& like,
                                              const ImageOptions& options);

}  // namespace convnet
