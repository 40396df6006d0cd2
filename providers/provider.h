// Data providers: numbered batches of images and labels.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convnet/base/minibatch_cut.h"
#include "convnet/base/tensor.h"
#include "providers/batch_range.h"

namespace convnet {

class Crc32;

/// Describes a matrix of a provider as a net sees it. Matrix 0 holds the images, matrix 1 the labels.
struct MatrixInfo {
  std::string name;  ///< "data", "labels"
  /// Dimensions of one image: (C,H,W), or for labels (1). Labels of mixed images (ImageOptions::mixes()) are
  /// (3): the class, the other image's class, and the other's weight in units of 1/65536, 0 to 65535. The
  /// weight is 0 and both classes are the image's own where nothing is mixed, as in tests.
  Dims dims;
  DataType type = DataType::u8;  ///< u8 or f32 for images, s32 for labels
  std::int64_t classes = 0;      ///< labels lie in [0, classes); 0 for other matrices
  /// The names of all classes, or none, if these are labels, or targets with a number for each class. They
  /// are UTF-8 (escape_non_utf8()), and may hold control characters.
  std::vector<std::string> class_names = {};
  /// (C,H,W) of images that read() returns whole, each followed by a Crop (convnet/base/crop.h); the part of
  /// size `dims` is cut out where they are used. Empty: read() returns exactly what the net sees.
  Dims uncropped = {};
  /// (C,H,W) of the data set's images if `dims` are those of crops; empty: the images are not cropped. For
  /// photographs both sides are the length of the shorter one, to which they are scaled.
  Dims stored = {};
  /// Type of the data set's images if read() converts them; nullopt: it is `type`.
  std::optional<DataType> stored_type = std::nullopt;

  /// Returns whether the data set's images are floats of any scale, not bytes.
  bool stores_floats() const { return stored_type.value_or(type) == DataType::f32; }
  /// Returns the number of bytes that read() returns for one image.
  std::int64_t image_bytes() const;
};

/// A batch or a piece of one. For each MatrixInfo there is a row-major matrix (images, ...), with
/// image_bytes() for each image.
struct DataBatch {
  std::int64_t images = 0;
  std::vector<std::vector<std::byte>> matrices;
  std::int64_t first = 0;  ///< index in the batch of the first image
  bool last = true;        ///< the batch ends with this piece
};

/// A piece of a batch that is being read, perhaps by other threads. Its destructor gives up what was not
/// read.
class PieceInProgress {
 public:
  PieceInProgress() = default;
  PieceInProgress(const PieceInProgress&) = delete;
  PieceInProgress& operator=(const PieceInProgress&) = delete;
  virtual ~PieceInProgress() = default;

  /// Returns DataBatch::last of the piece, which is known before the piece is.
  virtual bool last() const = 0;
  /// Returns whether wait() would return at once.
  virtual bool done() const = 0;
  /// Waits for the piece and returns it. Call it once. Throws what Provider::read() throws.
  virtual std::shared_ptr<const DataBatch> wait() = 0;
};

/// Returns a piece that has been read.
std::unique_ptr<PieceInProgress> finished_piece(std::shared_ptr<const DataBatch> piece);

/// The batches of a data set for training and tests, for runs that name none.
struct BatchSplit {
  BatchRange train;                ///< all batches if the data set has none for tests
  std::optional<BatchRange> test;  ///< the data set's own batches for tests, if it has any
  bool held_out = false;           ///< `test` is a tenth of the training images (ImageOptions::hold_out)
};

/// The part of every minibatch that a process computes.
struct ImageShare {
  MinibatchCut cut;
  std::vector<bool> wanted;  ///< for each microbatch, whether the process computes it

  /// Returns whether the process computes image `image` of a minibatch of `images`.
  bool wants(std::int64_t image, std::int64_t images) const {
    return wanted[static_cast<std::size_t>(cut.microbatch_of(images, image))];
  }
};

/// A request to read a piece of a batch.
struct LoadRequest {
  static constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
  int batch = 0;
  /// Epoch of training, from 1 on, which decides the shuffled order and random crops; 0: a test.
  int epoch = 0;
  std::int64_t first = 0, count = all;  ///< the images [first, first + count), as far as they exist
  /// The needed images of the piece, which is a minibatch; null: all. A provider may return zeros for other
  /// images; in tests it still returns their labels.
  const ImageShare* share = nullptr;
  bool operator==(const LoadRequest&) const = default;
};

/// Statistics measured over the training range at the start of a run, kept in checkpoints, and applied to
/// every image.
struct PixelStatistics {
  /// The mean image (C,H,W), to be subtracted from what the net sees; empty: nothing is subtracted.
  std::vector<float> mean;
  /// The standard deviations of the channels, by which read() divides; empty: it does not.
  std::vector<float> deviations;
  /// The principal components of the colours, for colour noise (4,3): a row with their standard deviations,
  /// then the components as columns; empty: no noise.
  std::vector<float> color_pca;
};

/// The choice whether training mirrors images left to right, each with probability 1/2.
enum class Flip {
  automatic,  ///< if it crops at random; provider "image" always mirrors
  off,
  on
};

/// What a table says of each photo (label_table.h): its class, any number of tags, or numbers. automatic: as
/// the table looks.
enum class LabelKind { automatic, classes, tags, numbers };

/// Returns what the data set says of an image: "classes", "tags", "numbers".
const char* to_string(LabelKind kind);

/// The name of matrix 2 if it holds tags: an image has any number of them, and matrix 1 is one of them.
inline constexpr const char* kTagsMatrix = "tags";

/// Returns the kind of labels that a data set of these matrices has; never automatic.
LabelKind label_kind(const std::vector<MatrixInfo>& matrices);

/// Options of every provider of images (crop.h, augment.h).
struct ImageOptions {
  int inner_size = 0;      ///< side of the square that is cropped, pixels; 0: the whole image
  int crop_pad = 0;        ///< width of the border of zeros around an image before a random crop, pixels
  bool pixel_std = false;  ///< divide by the channels' standard deviations

  bool multiview = false;   ///< tests see Provider::views() crops of each image, one after the other
  double scalar_mean = -1;  ///< number to subtract instead of the mean image; negative: the mean image

  // Only provider "image" reads these.
  std::string labels = {};  ///< CSV file with the labels of the photos (label_table.h); "": none
  LabelKind label_kind = LabelKind::automatic;  ///< what that file holds
  bool grey = false;                            ///< one channel, the luma, instead of RGB
  int image_size = 0;            ///< length to which shorter sides are scaled, pixels; 0: see image.h
  double color_noise = 0;        ///< scale of the noise, in standard deviations; 0: no noise
  bool skip_bad_images = false;  ///< replace an unreadable image by the next readable one
  bool can_skip = true;          ///< the command has the option --skip-bad-images, which messages may name
  int decode_threads = 0;        ///< 0: as many as there are cores
  std::string cache = {};        ///< folder for decoded pictures (picture_cache.h); "": none are kept
  /// If folders of classes have no test set, hold out a tenth of the images, by a hash of their names.
  bool hold_out = false;

  // These change only what training sees.
  /// Draw each image from a class that is as likely as any other. The data set must be opened with
  /// `shuffled`.
  bool balance = false;
  Flip flip = Flip::automatic;
  double mixup = 0, cutmix = 0;    ///< alpha of the Beta distribution of the other image's weight; 0: off
  double random_erasing = 0;       ///< probability that a rectangle of an image is erased
  double color_jitter = 0;         ///< strength of jitter_colors() (distort.h); 0: off
  bool trivial_augment = false;    ///< distort each image as draw_distortion() says (distort.h)
  double random_resized_crop = 0;  ///< smallest area of a crop, as a fraction of the image's; 0: off

  /// Returns whether training crops squares at random positions.
  bool crops() const { return inner_size > 0 || crop_pad > 0; }
  /// Returns the number of channels of photographs.
  int channels() const { return grey ? 1 : 3; }
  bool mixes() const { return mixup > 0 || cutmix > 0; }
  bool distorts() const { return color_jitter > 0 || trivial_augment; }
  /// Returns whether read() subtracts the mean image, because it adds noise to the difference and scales
  /// both.
  bool read_subtracts_mean() const { return color_noise > 0; }
};

/// Files of which only the first is named, because there may be millions.
struct CountedFiles {
  std::int64_t count = 0;
  std::string first;
  void add(const CountedFiles& more) {
    if (count == 0) first = more.first;
    count += more.count;
  }
};

/// Paths of files that look like images but are no part of a data set, and members of tars.
struct LeftOutFiles {
  std::vector<std::string> dangling_links;  ///< links that are named like images but lead nowhere
  std::vector<std::string> other_formats;   ///< pictures of formats that are not read: GIF, TIFF, HEIC, …
  std::vector<std::string> without_row;     ///< photos that the table of ImageOptions::labels does not name
  std::string header;  ///< the first line of that table if it was taken for a header, with its place
  std::string kind;  ///< what that table was taken for, if that may surprise: "3 tags of each photo"; else ""
  CountedFiles unpaired;       ///< images and labels in tars beside the pair of a sample
  CountedFiles other_members;  ///< members of tars that are neither images nor labels
  CountedFiles packed_tars;    ///< compressed tars beside others
  CountedFiles loose_images;   ///< images beside the folders of classes
  CountedFiles other_folders;  ///< folders with images beside the one with training images
  CountedFiles unnamed;        ///< images whose names do not end like those of images
  /// Adds a member of a tar that is not read.
  void add_member(const std::string& name, bool is_picture) {
    if (is_picture)
      other_formats.push_back(name);
    else
      other_members.add({1, name});
  }
  void add(const LeftOutFiles& more) {
    if (header.empty()) header = more.header;
    if (kind.empty()) kind = more.kind;
    unpaired.add(more.unpaired);
    other_members.add(more.other_members);
    packed_tars.add(more.packed_tars);
    loose_images.add(more.loose_images);
    other_folders.add(more.other_folders);
    unnamed.add(more.unnamed);
    without_row.insert(without_row.end(), more.without_row.begin(), more.without_row.end());
    dangling_links.insert(dangling_links.end(), more.dangling_links.begin(), more.dangling_links.end());
    other_formats.insert(other_formats.end(), more.other_formats.begin(), more.other_formats.end());
  }
};

/// A data set as numbered batches of images. The same request returns the same images every time. read() and
/// begin() may be called from another thread than the other functions, one call at a time.
class Provider {
 public:
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  virtual ~Provider() = default;

  /// Describes the matrices that read() makes.
  virtual const std::vector<MatrixInfo>& matrices() const = 0;
  /// Throws InputError naming `option` and the available batches if a batch of `range` does not exist.
  virtual void check_range(const BatchRange& range, const std::string& option) const = 0;
  /// Returns whether the images are files as users have them, in folders or tars, and not batches of
  /// cuda-convnet2 or of another program.
  virtual bool reads_files() const { return false; }
  /// Returns the batches of the data set; nullopt if they are not known.
  virtual std::optional<BatchSplit> split() const { return std::nullopt; }
  /// Returns the number of images in a batch, without reading image data. If the number is known only after
  /// reading, this is an upper bound until the whole batch has been read.
  virtual std::int64_t images_in(int batch) const = 0;
  /// Returns the exact number of images in a batch; reads the batch if necessary.
  virtual std::int64_t count_images(int batch) const { return images_in(batch); }
  /// Returns the name of an image of a test batch: a file below the data set's folder, or its name in a
  /// shard; "" if images have no names. The batch must have been read. Thread-safe.
  virtual std::string image_name(int, std::int64_t) const { return ""; }
  /// Throws InputError naming a label in `range` that is not a class, if reading all labels is fast; else
  /// does nothing, and read() reports such labels.
  virtual void check_labels(const BatchRange&) const {}
  /// Adds the labels in `range` to a checksum, and the names of images that have some, as far as they are
  /// known without reading images that do not stay in memory.
  virtual void add_labels(const BatchRange&, Crc32&) const {}
  /// Returns the number of images of each class in `range`; nothing if images have other labels than classes,
  /// or if that is not known without reading images.
  virtual std::vector<std::int64_t> class_counts(const BatchRange&) const { return {}; }
  /// Returns whether statistics() has a mean image; reads no data.
  virtual bool has_mean() const = 0;
  /// Returns whether the step subtracts the mean image when it loads images. If not, there is none, or read()
  /// has subtracted it.
  virtual bool step_subtracts_mean() const { return has_mean(); }
  /// Returns the statistics of the data set, or measures them over the batches of `range`.
  virtual PixelStatistics statistics(const BatchRange& range) const = 0;
  /// Returns the number of views of a test image, each of which is a row of what read() returns.
  virtual int views() const { return 1; }
  /// Returns a piece of a batch as the net gets it. In training (epoch > 0) it is shuffled and cropped at
  /// random, which depends on the seed, epoch, batch and index in the batch. Throws InputError for bad data,
  /// naming file and record, or RunError for I/O errors.
  virtual DataBatch read(const LoadRequest& request, const PixelStatistics& statistics) const = 0;
  /// Begins to read a piece, which will be as read() returns it. A provider whose images take long to read
  /// returns before it is complete, and several pieces may be in progress. Provider and `statistics` must
  /// outlive the piece. Throws what read() throws.
  virtual std::unique_ptr<PieceInProgress> begin(const LoadRequest& request,
                                                 const PixelStatistics& statistics) const {
    return finished_piece(std::make_shared<const DataBatch>(read(request, statistics)));
  }
  /// Loads what stays in memory for all of training, which may take long; else the first read() of a training
  /// batch does it. Ends early once `stopped`, which is called now and then, returns true. Call it only while
  /// nothing reads. Throws like read().
  virtual void load_training_data(const std::function<bool()>&) const {}
  /// Returns the names of unreadable images that were left out so far. Thread-safe.
  virtual std::vector<std::string> skipped_images() const { return {}; }
  /// Returns files of the data set that belong to no batch.
  virtual LeftOutFiles left_out() const { return {}; }
  /// Returns what a user can do if a net waits for what read() returns.
  virtual std::string faster_reading() const {
    return "fewer options that change images need less time (docs/data.md, Augmentation), and a faster disk "
           "delivers batches that are not kept in memory sooner";
  }
};

/// Returns a piece without matrices: the images [first, first + count) of a batch of `images`, as far as they
/// exist.
DataBatch empty_piece(std::int64_t images, std::int64_t first, std::int64_t count);

/// Returns the images [first, first + count) of a batch, as far as they exist.
DataBatch piece_of(const DataBatch& batch, std::int64_t first, std::int64_t count);

/// A provider of images of one size, which are stored as bytes or numbers and need no decoding.
class StoredProvider : public Provider {
 public:
  /// Returns the images of a batch as they are stored. Throws like read().
  virtual DataBatch load(int batch) const = 0;
  /// Returns only matrix 0 of load().
  virtual std::vector<std::byte> load_images(int batch) const { return std::move(load(batch).matrices[0]); }
  /// Returns the mean image (C,H,W) to be subtracted from every image, from the data set, or else measured
  /// over the batches of `range`. Empty: nothing is subtracted.
  virtual std::vector<float> mean_image(const BatchRange& range) const;
  void check_labels(const BatchRange& range) const override {
    for (int batch = range.first; batch <= range.last; ++batch) load(batch);
  }
  void add_labels(const BatchRange& range, Crc32& sum) const override;
  PixelStatistics statistics(const BatchRange& range) const override { return {mean_image(range), {}, {}}; }
  /// Converts a piece of a loaded batch, shuffled or not, to what read() returns. Returns the piece itself
  /// unless images are cropped or divided by deviations.
  virtual DataBatch finish(DataBatch piece, const LoadRequest&, const PixelStatistics&) const {
    return piece;
  }
  DataBatch read(const LoadRequest& request, const PixelStatistics& statistics) const override {
    return finish(piece_of(kept(request.batch), request.first, request.count), request, statistics);
  }

  /// Returns the most bytes of batches that read() keeps in memory. It always keeps the last one.
  virtual std::int64_t most_kept() const { return std::int64_t{1} << 30; }

 private:
  /// Returns a batch that is kept in memory, or loads it.
  const DataBatch& kept(int batch) const;

  // Only read() uses these, and it has one caller at a time.
  mutable std::map<int, DataBatch> kept_;
  mutable std::int64_t kept_bytes_ = 0;
  mutable std::optional<int> passing_;  ///< a batch of kept_ that is dropped when another one is read
};

/// Throws InputError if tests shall see several views of an image, but no option gives the size of a view.
void check_views(const ImageOptions& images);

/// Returns a warning that names the files; "" if there are none.
std::string left_out_text(const LeftOutFiles& files);

}  // namespace convnet
