// Data providers: numbered batches of images and labels.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/tensor.h"

namespace convnet {

/// What one matrix of a provider looks like: 0 is the images, 1 the labels.
struct MatrixInfo {
  std::string name;              ///< "data", "labels"
  Dims dims;                     ///< of one image: (C,H,W), or (1) for labels
  DataType type = DataType::u8;  ///< u8 or f32 for images, s32 for labels
  std::int64_t classes = 0;      ///< labels lie in [0, classes); 0 for other matrices
  /// Of labels: what the data set calls the classes, as many as there are, or none. From outside: any bytes.
  std::vector<std::string> class_names = {};
};

/// One loaded batch: a matrix per MatrixInfo, images outermost, row-major.
struct DataBatch {
  std::int64_t images = 0;
  std::vector<std::vector<std::byte>> matrices;
};

/// Inclusive range of batch numbers.
struct BatchRange {
  int first = 0, last = 0;
  int count() const { return last - first + 1; }
  bool holds(int batch) const { return batch >= first && batch <= last; }
  std::string str() const;  ///< "1-5" or "6"
  /// Reads "1-5" or "6". Throws InputError with what is allowed.
  static BatchRange parse(const std::string& text);
};

/// What to load.
struct LoadRequest {
  int batch = 0;
  int epoch = 0;  ///< of training, 1 and up: decides a shuffled order and random crops; 0: a test
  bool operator==(const LoadRequest&) const = default;
};

/// What is measured over the training range at the start of a run, kept in checkpoints, and applied to every
/// image.
struct PixelStatistics {
  std::vector<float>
      mean;  ///< (C,H,W) of what finish() makes, to be subtracted from it; empty: nothing to subtract
  std::vector<float> deviations;  ///< of the channels, by which finish() divides; empty: it does not
};

/// Options of every provider of images (crop.h).
struct ImageOptions {
  int inner_size = 0;      ///< side of the square that is cut out; 0: all of the image
  int crop_pad = 0;        ///< zeros around an image before a random crop
  bool pixel_std = false;  ///< divide by the channels' standard deviations

  bool multiview = false;  ///< tests see view_count crops of each image, one after the other
  static constexpr int view_count = 9;

  bool crops() const { return inner_size > 0 || crop_pad > 0; }
};

/// Access by batch number; the same number gives the same images every time. load() may be called from
/// another thread than the other functions, one call at a time.
class Provider {
 public:
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  virtual ~Provider() = default;

  /// What a net gets: what finish() makes of a loaded batch.
  virtual const std::vector<MatrixInfo>& matrices() const = 0;
  /// Throws InputError naming option and available numbers if a batch of `range` is not there.
  virtual void check_range(const BatchRange& range, const std::string& option) const = 0;
  /// Images in a batch; reads no image data.
  virtual std::int64_t images_in(int batch) const = 0;
  /// The images as they are stored. Throws InputError (bad data, naming file and record) or RunError (I/O).
  virtual DataBatch load(int batch) const = 0;
  /// Whether mean_image() gives an image to subtract; reads no data.
  virtual bool subtracts_mean() const = 0;
  /// Mean image (C,H,W) over the batches of `range`, to be subtracted from every image. Empty: nothing to
  /// subtract.
  virtual std::vector<float> mean_image(const BatchRange& range) const = 0;

  /// Over the batches of `range`.
  virtual PixelStatistics statistics(const BatchRange& range) const { return {mean_image(range), {}}; }
  /// Makes of a loaded batch, shuffled or not, what a net gets: random crops, if there are any, by epoch,
  /// batch and place in the batch. Where nothing is cropped or divided, it is the batch itself.
  virtual DataBatch finish(DataBatch stored, const LoadRequest&, const PixelStatistics&) const {
    return stored;
  }
};

/// Makes a provider: "mnist", "cifar" and "cropped-cifar" (read `path`), "dummy-CxHxW-K", "dummy-n",
/// "dummy-labeled-n", "dummy-lr-n" (no path). Throws InputError with the known names for another one. `seed`
/// decides the dummy data.
std::unique_ptr<Provider> make_provider(const std::string& name, const std::string& path, std::uint64_t seed,
                                        const ImageOptions& images = {});

/// The known provider names, for help and errors.
std::vector<std::string> provider_names();

}  // namespace convnet
