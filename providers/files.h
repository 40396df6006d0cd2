// Image files that belong to no data set, prepared like the images of a data set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "providers/provider.h"

namespace convnet {

/// The data set whose preparation files get.
struct LikeSet {
  std::string provider;              ///< name of its provider
  std::vector<MatrixInfo> matrices;  ///< its matrices, as its provider described them
  bool has_mean = false;             ///< its mean image is subtracted
};

/// Makes a provider with one batch, number 1: the files (JPEG, PNG or BMP) in this order, all with label 0.
/// For a data set of provider "image", they are scaled and cropped as tests do. For a data set of small
/// images, they are scaled to its size, with the centre of the longer side, and converted to grey if it has
/// one channel. Throws InputError if the data set has no images. read() throws InputError naming a file that
/// is no image.
std::unique_ptr<Provider> make_files_provider(std::vector<std::string> files, const LikeSet& like,
                                              const ImageOptions& options);

}  // namespace convnet
