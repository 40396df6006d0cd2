// Sources of encoded images: the forms of data sets that provider "image" reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "providers/provider.h"

namespace convnet {

/// An image as it is stored.
struct EncodedImage {
  std::string name;                  ///< for messages: a file, or a file and what in it
  std::string bytes;                 ///< of a JPEG, PNG or BMP file
  std::vector<std::int32_t> labels;  ///< classes, each in [0, classes)
};

/// Facts that a data set states about itself.
struct ImageSetInfo {
  std::int64_t classes = 0;
  std::vector<std::string> class_names;  ///< one for each class, or none
  int image_size = 0;                    ///< shorter side of the images; 0: any
  std::vector<float> mean;               ///< (3, image_size, image_size); empty: not known
  std::vector<float> color_pca;          ///< PixelStatistics::color_pca; empty: not known
  LeftOutFiles left_out;
};

/// Numbered batches of encoded images. Const functions may be called from several threads at once.
class ImageSource {
 public:
  ImageSource() = default;
  ImageSource(const ImageSource&) = delete;
  ImageSource& operator=(const ImageSource&) = delete;
  virtual ~ImageSource() = default;

  const ImageSetInfo& info() const { return info_; }
  virtual bool has(int batch) const = 0;
  /// "batches 1-40 (train), 41-44 (val)": what is there, for messages.
  virtual std::string contents() const = 0;
  /// As Provider::split().
  virtual std::optional<BatchSplit> split() const { return std::nullopt; }
  /// As Provider::image_name().
  virtual std::string name(int, std::int64_t) const { return ""; }
  /// As Provider::images_in().
  virtual std::int64_t images_in(int batch) const = 0;
  /// How many of the images [first, first + count) there are, and whether the batch ends with them. Makes
  /// them ready for read().
  struct Extent {
    std::int64_t images = 0;
    bool last = true;
  };
  virtual Extent extent(int batch, std::int64_t first, std::int64_t count) const {
    const std::int64_t left = std::max<std::int64_t>(0, images_in(batch) - first);
    return {std::min(count, left), count >= left};
  }
  /// Whether images of all batches can be read in any order without delay.
  virtual bool any_order() const { return true; }
  /// Image `image` of a batch, which extent() said is there. Throws InputError, RunError.
  virtual EncodedImage read(int batch, std::int64_t image) const = 0;

 protected:
  ImageSetInfo info_;
};

/// Images whose files were not of some batch from the start are dealt into batches of so many.
constexpr std::int64_t dealt_batch_images = 1024;

/// Opens what the folder (or tar) `path` is:
/// - with batches.meta: cuda-convnet2's batches, data_batch_N: each is a pickle, or a folder of pickles
///   data_batch_N.k, whose dicts hold `data` (a list of JPEGs) and `labels` (a list of lists of classes, or
///   of classes);
/// - with tars (or being one): shards of pairs KEY.jpg (or .jpeg .png .bmp) and KEY.cls; batch i is the i-th
///   in the natural order of names, from 1. The classes are the lines of classes.txt, or else as many as the
///   largest label says, for which all shards are read once here;
/// - else folders, a class each, with images in them, or in folders in them; the classes have their sorted
///   order. Images are dealt into batches, from 1, of dealt_batch_images in an order that depends on their
///   names alone.
/// In the last two forms folders `train` and `val` (or else `test`) may hold two such sets of the same
/// classes: the batches of the second follow those of the first. With `hold_out`, a tenth of the images of
/// folders without a second set becomes one, by a hash of class and name. Throws InputError, RunError.
std::unique_ptr<ImageSource> open_image_source(const std::string& path, bool hold_out = false);

// The forms, for open_image_source().
std::unique_ptr<ImageSource> open_image_pickles(const std::string& folder);
std::unique_ptr<ImageSource> open_image_tars(const std::string& path);
std::unique_ptr<ImageSource> open_image_folders(const std::string& folder, bool hold_out);

}  // namespace convnet
