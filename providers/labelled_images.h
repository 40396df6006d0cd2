// Images with a class each, in folders or tar shards: where their bytes are. Nothing is decoded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convnet/base/file.h"
#include "providers/provider.h"
#include "providers/tar.h"

namespace convnet {

/// One image file.
struct LabelledImage {
  std::string name;       ///< path below the folder, or "SHARD: MEMBER": for messages, the same wherever the
                          ///< folder lies
  std::int32_t tar = -1;  ///< index into LabelledImages::tars; -1: a file of its own
  FileRegion at;          ///< in the tar; of a file of its own only the size counts
  int label = 0;          ///< index into LabelledImages::class_names
};

struct LabelledImages {
  std::string folder;  ///< of the files that are not in tars
  std::vector<std::string> class_names;
  std::vector<LabelledImage> training, validation;
  std::vector<std::shared_ptr<const InputFile>> tars;
  LeftOutFiles left_out;

  /// The file's bytes; may be called from any thread. Throws like InputFile.
  std::string read(const LabelledImage& image) const;
};

/// Lists the images in `folder`: CLASS/….jpg|jpeg|png|bmp, or tar shards in WebDataset's style (KEY.jpg and
/// KEY.cls beside each other in *.tar), or a folder train/ with either of them, and val/ (else test/) for
/// validation. Classes are numbered in order of their folders' names, images come in order of theirs, shards
/// in natural order (2 before 10); hidden files and others than images are left out. Classes of shards get
/// their names from the lines of `folder`/classes.txt, else their numbers. Throws InputError naming what is
/// missing or does not fit, RunError for I/O errors.
LabelledImages find_labelled_images(const std::string& folder);

/// The same of a list of tar shards, all for training.
LabelledImages find_labelled_images(const std::vector<std::string>& shards);

}  // namespace convnet
