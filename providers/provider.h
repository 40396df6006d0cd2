// Data providers: numbered batches of images and labels.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convnet/base/tensor.h"

namespace convnet {

/// Describes a matrix of a provider as a net sees it: 0 is the images, 1 the labels.
struct MatrixInfo {
  std::string name;  ///< "data", "labels"
  /// Dimensions of one image: (C,H,W), or for labels (1). Labels of mixed images (ImageOptions::mixes()) are
  /// (3): the class, the other image's class, and the other's weight in units of 1/65536, 0 to 65535. The
  /// weight is 0 and both classes are the image's own where nothing is mixed, as in tests.
  Dims dims;
  DataType type = DataType::u8;  ///< u8 or f32 for images, s32 for labels
  std::int64_t classes = 0;      ///< labels lie in [0, classes); 0 for other matrices
  /// For labels: the data set's names of the classes, one each, or none. They come from outside: any bytes.
  std::vector<std::string> class_names = {};
  /// (C,H,W) of images that read() gives whole, each with a Crop of the size of `dims` (convnet/base/crop.h),
  /// which is cut out where they are used; empty: what it gives is what the net sees.
  Dims whole = {};
  /// (C,H,W) of the data set's images where `dims` are those of crops; empty: the images are not cropped.
  Dims stored = {};
  /// Type of the data set's images where read() makes numbers of another type of them; nullopt: `type`.
  std::optional<DataType> stored_type = std::nullopt;

  /// Whether the data set's images are numbers of any scale, not bytes.
  bool stores_floats() const { return stored_type.value_or(type) == DataType::f32; }
  /// Bytes that read() gives for one image.
  std::int64_t image_bytes() const;
};

/// A batch or a piece of one: a matrix per MatrixInfo, images outermost, row-major, image_bytes() each.
struct DataBatch {
  std::int64_t images = 0;
  std::vector<std::vector<std::byte>> matrices;
  std::int64_t first = 0;  ///< place in the batch of the first image
  bool last = true;        ///< the batch ends with this piece
};

/// Inclusive range of batch numbers.
struct BatchRange {
  int first = 0, last = 0;
  int count() const { return last - first + 1; }
  bool holds(int batch) const { return batch >= first && batch <= last; }
  std::string str() const;  ///< "1-5" or "6"
  /// Reads "1-5" or "6". Throws InputError with what is allowed.
  static BatchRange parse(const std::string& text);
  bool operator==(const BatchRange&) const = default;
};

/// The batches of a data set, for runs that name none.
struct BatchSplit {
  BatchRange train;                ///< all batches where there are none of tests
  std::optional<BatchRange> test;  ///< the batches of its own for tests, if it has them
  bool held_out = false;           ///< they are a tenth of the training images (ImageOptions::hold_out)
};

/// "1-5, 7" of sorted batch numbers.
std::string batches_text(const std::vector<int>& batches);

/// The part of every minibatch that a process computes. A minibatch is cut into `parts` of equally many
/// images; the last ones may have fewer, or none.
struct ImageShare {
  int parts = 1;
  std::vector<bool> wanted;  ///< by part

  /// Whether the process computes image `image` of a minibatch of `images`.
  bool wants(std::int64_t image, std::int64_t images) const {
    return wanted[static_cast<std::size_t>(image / ((images + parts - 1) / parts))];
  }
};

/// Names a piece of a batch to be read.
struct LoadRequest {
  static constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
  int batch = 0;
  int epoch = 0;  ///< of training, 1 and up: decides a shuffled order and random crops; 0: a test
  std::int64_t first = 0, count = all;  ///< the piece [first, first + count), as far as there are images
  /// The images of the piece, a minibatch, that are needed; null: all. A provider may skip the work for the
  /// other images and return zeros for them; in tests it still returns their labels.
  const ImageShare* share = nullptr;
  bool operator==(const LoadRequest&) const = default;
};

/// Statistics measured over the training range at the start of a run, kept in checkpoints, and applied to
/// every image.
struct PixelStatistics {
  std::vector<float>
      mean;  ///< (C,H,W) of what the net sees, to be subtracted from it; empty: nothing to subtract
  std::vector<float> deviations;  ///< of the channels, by which read() divides; empty: it does not
  /// (4,3) for colour noise: the standard deviations of the colours' principal components, then these, a
  /// column each; empty: no noise.
  std::vector<float> color_pca;
};

/// Whether training mirrors images left to right, each with probability 1/2.
enum class Flip {
  automatic,  ///< where it crops at random; provider "image" always does
  off,
  on
};

/// Options of every provider of images (crop.h, augment.h).
struct ImageOptions {
  int inner_size = 0;      ///< side of the square that is cut out; 0: all of the image
  int crop_pad = 0;        ///< zeros around an image before a random crop
  bool pixel_std = false;  ///< divide by the channels' standard deviations

  bool multiview = false;   ///< tests see Provider::views() crops of each image, one after the other
  double scalar_mean = -1;  ///< to be subtracted instead of the mean image; negative: the mean image

  // Only provider "image" reads these.
  int image_size = 0;            ///< shorter side to scale images to; 0: as image.h says
  double color_noise = 0;        ///< its scale, in standard deviations; 0: none
  bool skip_bad_images = false;  ///< the next readable one takes an unreadable image's place
  int decode_threads = 0;        ///< 0: as many as there are cores
  bool hold_out = false;         ///< a tenth of the images, by a hash of their names, becomes a set of tests
                                 ///< where folders of classes have none

  // Only training sees what these do.
  Flip flip = Flip::automatic;
  double mixup = 0, cutmix = 0;    ///< alpha of the Beta distribution of the other image's weight; 0: off
  double random_erasing = 0;       ///< probability that an image loses a rectangle
  double random_resized_crop = 0;  ///< smallest area of a crop, as a part of the image's; 0: off

  /// Whether training takes squares of images from random places.
  bool crops() const { return inner_size > 0 || crop_pad > 0; }
  bool mixes() const { return mixup > 0 || cutmix > 0; }
  /// Whether read() subtracts the mean image: noise is added to what is left and scaled with it.
  bool read_subtracts_mean() const { return color_noise > 0; }
};

/// Files in folders of images that look like images and cannot be read as such, by path.
struct LeftOutFiles {
  std::vector<std::string> dangling_links;  ///< links that are named like images but lead nowhere
  std::vector<std::string> other_formats;   ///< pictures of formats that are not read: GIF, TIFF, WebP, …
  void add(const LeftOutFiles& more) {
    dangling_links.insert(dangling_links.end(), more.dangling_links.begin(), more.dangling_links.end());
    other_formats.insert(other_formats.end(), more.other_formats.begin(), more.other_formats.end());
  }
};

/// Access by (epoch, batch, image): the same request gives the same images every time. read() may be called
/// from another thread than the other functions, one call at a time.
class Provider {
 public:
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  virtual ~Provider() = default;

  /// Describes the matrices that read() makes.
  virtual const std::vector<MatrixInfo>& matrices() const = 0;
  /// Throws InputError naming option and available numbers if a batch of `range` is not there.
  virtual void check_range(const BatchRange& range, const std::string& option) const = 0;
  /// The batches that there are; nullopt where that cannot be told.
  virtual std::optional<BatchSplit> split() const { return std::nullopt; }
  /// Returns the number of images in a batch, without reading image data. If only reading can tell, this is
  /// an upper bound until the whole batch has been read.
  virtual std::int64_t images_in(int batch) const = 0;
  /// Images in a batch, exactly; where only reading tells, it is read.
  virtual std::int64_t count_images(int batch) const { return images_in(batch); }
  /// The name of an image as tests see a batch: a file below the data set's folder, or what a shard calls it;
  /// "" where images have none. The batch must have been read. Thread-safe.
  virtual std::string image_name(int, std::int64_t) const { return ""; }
  /// Throws InputError naming a label in `range` that is none of the classes, where all labels are read
  /// faster than they are used; else does nothing, and read() finds them.
  virtual void check_labels(const BatchRange&) const {}
  /// Whether statistics() give a mean image; reads no data.
  virtual bool has_mean() const = 0;
  /// Whether the step subtracts the mean image when it loads images; if not, there is none, or read() has
  /// subtracted it.
  virtual bool step_subtracts_mean() const { return has_mean(); }
  /// Measured over the batches of `range`, or what the data set says.
  virtual PixelStatistics statistics(const BatchRange& range) const = 0;
  /// Number of views, and so of rows, that read() makes of a test image.
  virtual int views() const { return 1; }
  /// Makes what a net gets of a piece of a batch: for training (epoch > 0) shuffled and cropped at random, by
  /// seed, epoch, batch and place in the batch. Throws InputError (bad data, naming file and record) or
  /// RunError (I/O).
  virtual DataBatch read(const LoadRequest& request, const PixelStatistics& statistics) const = 0;
  /// Unreadable images that were left out so far, by name; thread-safe.
  virtual std::vector<std::string> skipped_images() const { return {}; }
  /// Files of the data set that belong to no batch.
  virtual LeftOutFiles left_out() const { return {}; }
};

/// The images [first, first + count) of a batch, as far as there are.
DataBatch piece_of(const DataBatch& batch, std::int64_t first, std::int64_t count);

/// A provider whose images have one size, as bytes or numbers that are there to be copied.
class StoredProvider : public Provider {
 public:
  /// The images of a batch as they are stored. Throws like read().
  virtual DataBatch load(int batch) const = 0;
  /// Matrix 0 of load() alone.
  virtual std::vector<std::byte> load_images(int batch) const { return std::move(load(batch).matrices[0]); }
  /// Mean image (C,H,W), to be subtracted from every image, measured over the batches of `range` unless the
  /// data set says it. Empty: nothing to subtract.
  virtual std::vector<float> mean_image(const BatchRange& range) const;
  void check_labels(const BatchRange& range) const override {
    for (int batch = range.first; batch <= range.last; ++batch) load(batch);
  }
  PixelStatistics statistics(const BatchRange& range) const override { return {mean_image(range), {}, {}}; }
  /// Makes of a piece of a loaded batch, shuffled or not, what read() gives. Where nothing is cropped or
  /// divided, it is the piece itself.
  virtual DataBatch finish(DataBatch piece, const LoadRequest&, const PixelStatistics&) const {
    return piece;
  }
  DataBatch read(const LoadRequest& request, const PixelStatistics& statistics) const override {
    return finish(piece_of(kept(request.batch), request.first, request.count), request, statistics);
  }

  /// Bytes of the batches that read() keeps. It keeps the last one always.
  virtual std::int64_t most_kept() const { return std::int64_t{1} << 30; }

 private:
  /// A loaded batch: the one of the last call, or of those that are kept, or it is loaded now.
  const DataBatch& kept(int batch) const;

  // Only read() uses these, and it has one caller at a time.
  mutable std::map<int, DataBatch> kept_;
  mutable std::int64_t kept_bytes_ = 0;
  mutable std::optional<int> passing_;  ///< one of kept_ that goes when another batch is read
};

/// Makes a provider: "image" (reads `path`: image.h), "mnist", "cifar", "cifar-cropped" and "npy" (read
/// `path`), "dummy-CxHxW-K", "dummy-n", "dummy-labeled-n", "dummy-lr-n" (no path). With `shuffled`, training
/// sees the images of that range in another order each epoch (shuffle.h). `seed` decides everything random.
/// Throws InputError for an unknown name, with the known ones, and for options that do not fit the provider.
std::unique_ptr<Provider> make_provider(const std::string& name, const std::string& path, std::uint64_t seed,
                                        const ImageOptions& images = {},
                                        const std::optional<BatchRange>& shuffled = {});

/// Throws InputError if tests are to see several views of an image, and no option says how large one is.
void check_views(const ImageOptions& images);

/// The known provider names, for help and errors.
std::vector<std::string> provider_names();

/// A warning that names the files; "" for none.
std::string left_out_text(const LeftOutFiles& files);

}  // namespace convnet
