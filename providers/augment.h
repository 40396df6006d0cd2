// Augmentation of training images after they are cropped: erased rectangles, and mixtures of two images.
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

/// Names an image of training; everything random about it is drawn from this and the seed.
struct ImagePlace {
  int epoch = 0, batch = 0;
  std::int64_t image = 0;  ///< place in the batch
};

/// Returns the random words number `attempt` of an image in the stream `key`.
Philox4x32 draw(std::uint64_t key, const ImagePlace& place, std::uint32_t attempt = 0);

/// Returns a number that is uniform in 0 … `most`.
int uniform(std::uint32_t word, int most);

/// Bounds of a random rectangle: its area as a part of the image's, uniform, and its ratio of width to
/// height, uniform in its logarithm.
struct WindowBounds {
  double least_area = 0, most_area = 1, least_ratio = 1, most_ratio = 1;
};

/// Draws up to ten rectangles of whole pixels, from attempts 1 to 10 of draw(); returns the first that fits
/// into an image of `height` x `width`, at a place that is uniform on each axis, or none.
std::optional<ImageWindow> random_window(std::uint64_t key, const ImagePlace& place, int height, int width,
                                         const WindowBounds& bounds);

/// Says what an image is mixed with.
struct Mixture {
  std::int64_t other = 0;          ///< place in the batch of the other image
  std::int32_t weight = 0;         ///< of the other image, in units of 1/65536, 0 to 65535; 0: no mixture
  std::optional<ImageWindow> box;  ///< for cutmix, the part of the other image that is put in
};

/// Erases and mixes images of one size.
class Augmentation {
 public:
  /// Number of consecutive images of a batch, counted from its start, that are mixed with each other. A file
  /// of cuda-convnet2's batches has as many, so few files need to be in memory.
  static constexpr std::int64_t group = 1024;

  /// `matrices` are those of the data set, the first with `dims` and `type` as the net sees them. Throws
  /// InputError naming an option that does not fit them.
  Augmentation(const ImageOptions& options, const std::vector<MatrixInfo>& matrices, std::uint64_t seed);

  /// `matrices` with three values for each label if images are mixed.
  const std::vector<MatrixInfo>& matrices() const { return matrices_; }
  bool mixes() const { return options_.mixes(); }
  bool erases() const { return options_.random_erasing > 0; }

  /// Replaces a random_window() of a training image, of 2 to 33 % of the area and a ratio from 0.3 to 3.3, by
  /// the mean image, or by zeros where read() has subtracted it, with probability --random-erasing.
  void erase(const ImagePlace& place, const PixelStatistics& statistics, std::byte* pixels) const;

  /// Draws the other image uniformly from the rest of the group, and its weight from Beta(alpha, alpha). For
  /// cutmix a box of such an area, with the image's shape and a centre that is uniform on each axis, is cut
  /// off at the border, and the part of the image that it then covers is the weight. `end` is the number of
  /// images of the batch, or any number from the group's end on if the batch has more.
  Mixture mixture(const ImagePlace& place, std::int64_t end) const;

  /// Mixes image `image` of `piece` with the first one of `other`; both have matrices(). Pixels of bytes are
  /// rounded to the nearest, labels get the other class and its weight, further matrices are averaged.
  void mix(const Mixture& mixture, DataBatch& piece, std::int64_t image, const DataBatch& other) const;

 private:
  /// Returns a number from Beta(alpha, alpha).
  double beta_variable(double alpha, const ImagePlace& place) const;
  /// Mixes the numbers of an image in matrix `matrix`: a box of the image itself, or all of them.
  template <class Item>
  void mix_numbers(const Mixture& mixture, std::size_t matrix, Item* own, const Item* other) const;

  const ImageOptions options_;
  std::vector<MatrixInfo> matrices_;
  int channels_ = 1, height_ = 1, width_ = 1;  ///< of images; vectors are a row
  const std::uint64_t mix_key_, own_key_, other_key_, erase_key_;
};

/// `plain` with its training images erased and mixed as the options say. They are cut out on the host.
std::unique_ptr<Provider> make_augmented_provider(std::unique_ptr<Provider> plain,
                                                  const ImageOptions& options, std::uint64_t seed);

}  // namespace convnet
