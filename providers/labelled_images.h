// Lists images with one class each in folders or tar shards, without decoding them.
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
  std::string name;       ///< name for messages: path below the folder, or "SHARD: MEMBER"
  std::int32_t tar = -1;  ///< index into LabelledImages::tars; -1: a separate file
  FileRegion at;          ///< place in the tar; for a separate file only the size is used
  int label = 0;          ///< index into LabelledImages::class_names; -1: see `tags` and `numbers`
  std::vector<std::int32_t> tags = {};  ///< indices into class_names, if LabelledImages::kind is tags
  std::vector<float> numbers = {};      ///< if that is numbers: one for each of class_names
};

/// Images of a data set, with their classes.
struct LabelledImages {
  std::string folder;                    ///< folder of the files that are not in tars
  LabelKind kind = LabelKind::classes;   ///< not automatic
  std::vector<std::string> class_names;  ///< or those of tags or numbers
  std::vector<LabelledImage> training, validation;
  std::vector<std::shared_ptr<const InputFile>> tars;
  LeftOutFiles left_out;

  /// Returns the bytes of the image file. May be called from any thread. Throws like InputFile.
  std::string read(const LabelledImage& image) const;
};

/// Lists the images in `folder`: CLASS/….jpg (or another of kImageExtensions), or tar shards in WebDataset's
/// style (pairs of KEY.jpg and KEY.cls in *.tar), or a folder train/ with either of them, and val/ (else
/// test/) for validation. Classes are numbered in the order of their folders' names. Images are sorted by
/// name, shards in natural order (2 before 10). Hidden files and files that are no images are left out.
/// Classes of shards are named by the lines of `folder`/classes.txt, else by their numbers. Throws InputError
/// naming what is missing or does not fit, RunError for I/O errors.
LabelledImages find_labelled_images(const std::string& folder);

/// Lists the images in tar shards, all for training.
LabelledImages find_labelled_images(const std::vector<std::string>& shards);

/// Makes validation images of a tenth of the training images (choose_held_out()) if there are no others.
/// Returns whether it did. Throws InputError if there is only one image.
bool hold_out_tenth(LabelledImages& images, const std::string& folder);

/// Lists the photos that lie in `folder` at any depth, or in the tars in it. Their classes, tags or numbers
/// stand in the CSV file `table` (label_table.h). Photos below a folder `train` (or with another name for it)
/// are for training and those below `val` for validation; without such folders all are for training. Photos
/// without a row are left out. Throws InputError or RunError.
LabelledImages find_photos(const std::string& folder, const std::string& table,
                           LabelKind kind = LabelKind::automatic);

/// Lists the photos in tars, all for training.
LabelledImages find_photos(const std::vector<std::string>& tars, const std::string& table,
                           LabelKind kind = LabelKind::automatic);

}  // namespace convnet
