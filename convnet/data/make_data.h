// Builds cuda-convnet2's ImageNet batches: folders of pickled lists of JPEGs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "providers/labelled_images.h"

namespace convnet {

struct MakeDataOptions {
  std::string folder;            ///< folder in which the data set is made
  int size = 256;                ///< length of the images' shorter side, pixels
  bool crop_to_square = true;    ///< keep only the square in the middle
  int batch_size = 3072;         ///< images
  std::uint64_t seed = 1;        ///< decides the order of the training images
  int threads = 0;               ///< 0: as many as there are cores
  bool held_out = false;         ///< the validation images are a tenth of those of a data set without any
  bool skip_bad_images = false;  ///< leave out images that cannot be decoded; else they are errors
};

/// Progress in images; `before` of the `done` images were made by earlier runs.
struct MakeDataProgress {
  std::int64_t before = 0, done = 0, total = 0;
  std::string finished;  ///< the batch that this call reports as complete, "data_batch_3"; usually empty
};

struct MakeDataResult {
  std::int64_t training_images = 0, validation_images = 0;  ///< number of images in the data set
  int training_batches = 0;                                 ///< number of batches, numbered from 0
  int validation_batches = 0;                               ///< number, from first_validation_batch
  int first_validation_batch = 0;
  std::vector<std::string> bad_images;  ///< names of images that were left out, with the reason
};

/// Writes data_batch_N/data_batch_N.K (1024 images each) and, at the end, batches.meta with the mean image
/// and the principal components of the colours of the training images. Training images are shuffled.
/// Validation images keep their order and begin at the next batch whose number is a multiple of 1000. A batch
/// has one image less for each bad image in it. The result depends only on the images, size, crop_to_square,
/// batch_size and seed. If the process is killed, the same call continues at the first missing file, and the
/// result is the same; make-data.state in the folder holds what this needs until batches.meta is written.
///
/// `report` is called from time to time, from any of the threads, one call at a time. Throws InputError for
/// bad images and for a folder that holds anything else, naming it; RunError for I/O errors.
MakeDataResult make_data(const LabelledImages& images, const MakeDataOptions& options,
                         const std::function<void(const MakeDataProgress&)>& report);

}  // namespace convnet
