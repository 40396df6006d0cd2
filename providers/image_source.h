// Sources of encoded images: the forms of data sets that provider "image" reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "providers/picture_cache.h"
#include "providers/provider.h"

namespace convnet {

/// What a data set says of an image.
struct ImageLabels {
  std::vector<std::int32_t> classes;  ///< classes or tags, each in [0, ImageSetInfo::classes)
  std::vector<float> numbers = {};    ///< as many as ImageSetInfo::number_names
};

/// An image as it is stored.
struct EncodedImage {
  std::string name;   ///< name for messages: a file, or a file and the place in it
  std::string bytes;  ///< contents of a JPEG, PNG, BMP or WebP file
  ImageLabels labels;
};

/// Facts that a data set states about itself.
struct ImageSetInfo {
  std::int64_t classes = 0;
  std::vector<std::string> class_names;  ///< one for each class, or none at all
  bool has_tags = false;                 ///< the classes are tags, of which an image has any number
  /// Names of the numbers that each image has instead of classes; empty: images have classes.
  std::vector<std::string> number_names;
  int image_size = 0;            ///< shorter side of the images, pixels; 0: any
  std::vector<float> mean;       ///< (3, image_size, image_size); empty: not known
  std::vector<float> color_pca;  ///< PixelStatistics::color_pca; empty: not known
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
  /// Returns what was found so far that is no part of the data set.
  virtual LeftOutFiles left_out() const { return info_.left_out; }
  virtual bool has(int batch) const = 0;
  /// Returns the batches for messages: "batches 1-40 (train), 41-44 (val)".
  virtual std::string contents() const = 0;
  /// See Provider::split().
  virtual std::optional<BatchSplit> split() const { return std::nullopt; }
  /// See Provider::image_name().
  virtual std::string name(int, std::int64_t) const { return ""; }
  /// See Provider::images_in().
  virtual std::int64_t images_in(int batch) const = 0;
  /// The existing part of a range of images.
  struct Extent {
    std::int64_t images = 0;                     ///< number of images that exist
    bool last = true;                            ///< the batch ends with them
    std::shared_ptr<const void> held = nullptr;  ///< keeps what read() needs in memory; may be null
  };
  /// Returns how many of the images [first, first + count) exist, and makes them ready for read(), which is
  /// fast until the next call, and as long as Extent::held exists.
  virtual Extent extent(int batch, std::int64_t first, std::int64_t count) const {
    const std::int64_t left = std::max<std::int64_t>(0, images_in(batch) - first);
    return {std::min(count, left), count >= left};
  }
  /// Returns whether images of all batches can be read in any order without delay.
  virtual bool any_order() const { return true; }
  /// Returns whether images_in(), name() and labels() read no file.
  virtual bool knows_labels() const { return false; }
  /// Reads image `image` of a batch. An earlier extent() must have included it. Throws InputError or
  /// RunError.
  virtual EncodedImage read(int batch, std::int64_t image) const = 0;
  /// Returns the file of an image that read() could read, and its state now; nullopt if it has none.
  virtual std::optional<PictureOrigin> origin(int, std::int64_t) const { return std::nullopt; }
  /// Returns only EncodedImage::labels, without reading the image if they are known.
  virtual ImageLabels labels(int batch, std::int64_t image) const { return read(batch, image).labels; }

 protected:
  ImageSetInfo info_;
};

/// The values of label_kind in batches.meta. Without the key, labels are classes.
inline constexpr const char *kMetaClasses = "classes", *kMetaTags = "tags";

/// Number of images in the batches of data sets whose files do not define batches.
constexpr std::int64_t kDealtBatchImages = 1024;

/// Opens the folder (or tar) `path`, which is one of these:
/// - with batches.meta: cuda-convnet2's batches, data_batch_N: each is a pickle, or a folder of pickles
///   data_batch_N.k, whose dicts hold `data` (a list of JPEGs) and `labels` (a list of classes, or of lists
///   of classes);
/// - a tar, or a folder of tars: shards with pairs of KEY.jpg (or another of kImageExtensions) and KEY.cls.
///   Batch i, from 1 on, is the i-th shard in the natural order of names. The classes are the lines of
///   classes.txt. Without this file, the largest label decides their number, and all shards are read once in
///   this call to find it;
/// - else a folder with a folder for each class, in sorted order, with images in them or in their subfolders.
///   Batches, numbered from 1 on, have kDealtBatchImages images each, in an order that depends only on the
///   images' names.
/// In the last two forms, folders `train` and `val` (or else `test`) may hold two such sets of the same
/// classes; the batches of the second follow those of the first. With `hold_out`, a tenth of the images of
/// folders without a second set, chosen by a hash of class and name, becomes the second set. If `table` is
/// not empty, it is the CSV file with the labels, of this kind, of the photos in the folder or tars
/// (find_photos()), which form batches as those of folders do. Throws InputError or RunError.
std::unique_ptr<ImageSource> open_image_source(const std::string& path, bool hold_out = false,
                                               const std::string& table = "",
                                               LabelKind kind = LabelKind::automatic);

/// Returns whether a folder holds cuda-convnet2's batches, whose images have one size.
bool has_image_batches(const std::string& path);
/// Returns the side of the images in such batches. Throws InputError.
std::int64_t side_of_image_batches(const std::string& path);

// One function for each form; open_image_source() calls them.
std::unique_ptr<ImageSource> open_image_pickles(const std::string& folder);
std::unique_ptr<ImageSource> open_image_tars(const std::string& path);
std::unique_ptr<ImageSource> open_image_folders(const std::string& folder, bool hold_out);
std::unique_ptr<ImageSource> open_photos(const std::string& path, const std::string& table, LabelKind kind,
                                         bool hold_out);

}  // namespace convnet
