// ILSVRC-2012 as it is distributed: three tars, read in place.
#pragma once

#include <string>

#include "providers/labelled_images.h"

namespace convnet {

/// The paths of the three tars.
struct IlsvrcTars {
  std::string training;    ///< ILSVRC2012_img_train.tar: a tar of images for each class, named after its WNID
  std::string validation;  ///< ILSVRC2012_img_val.tar
  std::string devkit;      ///< ILSVRC2012_devkit_t12.tar.gz, with data/meta.mat and the validation's classes
};

/// Lists the images of the three tars. Class k is the synset with ILSVRC2012_ID k + 1, and its name is the
/// synset's words. Validation images, sorted by name, take their classes from the lines of
/// ILSVRC2012_validation_ground_truth.txt. Throws InputError naming the tar, the member or line and what is
/// wrong; RunError for I/O errors.
LabelledImages find_ilsvrc_images(const IlsvrcTars& tars);

}  // namespace convnet
