// Images in files that belong to no data set, prepared like the images of a data set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "providers/npy_array.h"
#include "providers/provider.h"

namespace convnet {

/// The data set whose preparation files get.
struct LikeSet {
  std::string provider;              ///< name of its provider
  std::vector<MatrixInfo> matrices;  ///< its matrices, as its provider described them
  bool has_mean = false;             ///< its mean image is subtracted
};

/// An image: a file (JPEG, PNG, BMP or WebP), its bytes, or a record of an array.
struct FileImage {
  std::string file;                                    ///< name
  std::shared_ptr<const NpyArray> array = nullptr;     ///< the open array `file`; null: the file is an image
  std::int64_t record = 0;                             ///< index of the image in the array
  std::shared_ptr<const std::string> bytes = nullptr;  ///< what the file holds; null: it is read when needed

  /// Returns the file's name, with the index of a record: "x.npy[3]".
  std::string name() const;
};

/// Returns the images in a file: the records of an array if its name ends in ".npy", else the file itself.
/// Opens arrays, but not files of images. Throws InputError naming the file if the data set's images are of
/// another kind: for an array, those of provider "image", or of another size or type; for an image, numbers
/// of float32 or anything else without one or three channels.
std::vector<FileImage> images_in_file(const std::string& file, const LikeSet& like);

/// Returns the image that a file consists of, whose bytes were read already. Throws InputError as
/// images_in_file() does; `name` stands for the file in messages.
FileImage image_in_bytes(const std::string& name, std::string bytes, const LikeSet& like);

/// Makes a provider with one batch, number 1: the images, which images_in_file() has found for the same data
/// set, in this order, all with label 0. For a data set of provider "image", they are scaled and cropped as
/// tests do. For a data set of images of one size, files are scaled to that size, with the centre of the
/// longer side, and converted to grey if it has one channel; records of arrays are taken as they are. read()
/// throws InputError naming a file that is no image, or a record that is not finite.
std::unique_ptr<Provider> make_files_provider(std::vector<FileImage> images, const LikeSet& like,
                                              const ImageOptions& options);

}  // namespace convnet
