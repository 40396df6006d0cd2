// Augmentation of training images after cropping: distortions, random erasing, mixup and cutmix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "convnet/base/philox.h"
#include "providers/decode.h"
#include "providers/provider.h"

namespace convnet {

/// Identifies an image in training. Everything random about it depends only on this and the seed.
struct ImagePlace {
  int epoch = 0, batch = 0;
  std::int64_t image = 0;  ///< index in the batch
};

/// Returns the `attempt`-th random words of an image in the random stream `key`.
Philox4x32 draw(std::uint64_t key, const ImagePlace& place, std::uint32_t attempt = 0);

/// Returns an integer that is uniform in 0 … `most`.
int uniform(std::uint32_t word, int most);

/// Bounds of a random rectangle. Its area, as a fraction of the image's, is uniform; its ratio of width to
/// height is uniform on a logarithmic scale.
struct WindowBounds {
  double least_area = 0, most_area = 1, least_ratio = 1, most_ratio = 1;
};

/// Draws up to ten rectangles of whole pixels, with attempts 1 to 10 of draw(), and returns the first one
/// that fits into an image of `height` x `width`, at a position that is uniform on each axis. Returns nullopt
/// if none fits.
std::optional<ImageWindow> random_window(std::uint64_t key, const ImagePlace& place, int height, int width,
                                         const WindowBounds& bounds);

/// A mixture of an image with another one.
struct Mixture {
  std::int64_t other = 0;   ///< index of the other image in the batch
  std::int32_t weight = 0;  ///< weight of the other image in units of 1/65536, 0 to 65535; 0: no mixture
  std::optional<ImageWindow> box;  ///< the part that comes from the other image, if this is cutmix
};

/// Distorts, erases and mixes images of one size.
class Augmentation {
 public:
  /// An image is mixed with another one of its group. Groups have this many consecutive images, from the
  /// start of the batch. Files of cuda-convnet2's batches have as many, so that few files need to be in
  /// memory.
  static constexpr std::int64_t group = 1024;

  /// `matrices` describes the data set; the first has `dims` and `type` as the net sees them. Throws
  /// InputError naming an option that does not fit them.
  Augmentation(const ImageOptions& options, const std::vector<MatrixInfo>& matrices, std::uint64_t seed);

  /// Returns the matrices of the constructor, with three values for each label if images are mixed.
  const std::vector<MatrixInfo>& matrices() const { return matrices_; }
  bool mixes() const { return options_.mixes(); }
  bool distorts() const { return options_.distorts(); }
  bool erases() const { return options_.random_erasing > 0; }

  /// Distorts a training image as --trivial-augment and --color-jitter say.
  void distort(const ImagePlace& place, DecodedImage& image) const;
  /// Does the same for pixels of matrix 0, (C,H,W) with one or three channels, which are bytes, or floats
  /// that read() made of bytes.
  void distort(const ImagePlace& place, const PixelStatistics& statistics, std::byte* pixels) const;

  /// Replaces, with probability --random-erasing, a random_window() of a training image, of 2 to 33 % of the
  /// area and a ratio from 0.3 to 3.3, by the mean image, or by zeros if read() has subtracted the mean.
  void erase(const ImagePlace& place, const PixelStatistics& statistics, std::byte* pixels) const;

  /// Draws the other image uniformly from the rest of the group, and its weight from Beta(alpha, alpha). For
  /// cutmix, a box has that fraction of the area, the image's aspect ratio, and a centre that is uniform on
  /// each axis; it is clipped at the border, and the fraction of the image that it then covers is the weight.
  /// `end` is the number of images of the batch, or any larger number than the group's last index if the
  /// batch has more.
  Mixture mixture(const ImagePlace& place, std::int64_t end) const;

  /// Mixes image `image` of `piece` with the first one of `other`; both have matrices(). Pixels of bytes are
  /// rounded to the nearest integer. Labels get the other class and its weight. Further matrices are averaged
  /// with the weight.
  void mix(const Mixture& mixture, DataBatch& piece, std::int64_t image, const DataBatch& other) const;

 private:
  template <class Item>
  void distort_pixels(const ImagePlace& place, const std::vector<float>& deviations, Item* pixels) const;
  /// Returns a number from Beta(alpha, alpha).
  double beta_variable(double alpha, const ImagePlace& place) const;
  /// Mixes the values of an image in matrix `matrix`: for matrix 0 only those in the box, if there is one.
  template <class Item>
  void mix_numbers(const Mixture& mixture, std::size_t matrix, Item* own, const Item* other) const;

  const ImageOptions options_;
  std::vector<MatrixInfo> matrices_;
  int channels_ = 1, height_ = 1, width_ = 1;  ///< sizes of images; a vector counts as one row
  const std::uint64_t mix_key_, own_key_, other_key_, erase_key_, trivial_key_, jitter_key_;
};

/// Makes a provider of the data of `plain` with training images distorted, erased and mixed as the options
/// say. Images are cropped on the host, not on the device.
std::unique_ptr<Provider> make_augmented_provider(std::unique_ptr<Provider> plain,
                                                  const ImageOptions& options, std::uint64_t seed);

}  // namespace convnet
