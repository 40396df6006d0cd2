// Training images in shuffled order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "providers/provider.h"

namespace convnet {

/// A random order of the images of several batches, new in every epoch and the same in every run with that
/// seed. Batches keep their sizes.
class EpochOrder {
 public:
  /// `images` are the numbers of images of the batches.
  EpochOrder(const std::vector<std::int64_t>& images, std::uint64_t seed);
  /// Makes an order in which all classes are equally frequent, up to one image: in an epoch, those of a large
  /// class are drawn at most once, and those of a small class repeatedly. `classes` has that of each image,
  /// in the stored order; images of class -1 are not drawn. Throws InputError if no image has a class.
  EpochOrder(const std::vector<std::int64_t>& images, const std::vector<std::int32_t>& classes,
             std::uint64_t seed);
  /// Makes the order of an epoch; at() then describes it.
  void prepare(int epoch);
  /// Returns the epoch of the order; -1 if there is none yet.
  int epoch() const { return epoch_; }

  /// An image in the stored order.
  struct Stored {
    std::size_t batch = 0;  ///< counted from 0
    std::int64_t image = 0;
  };
  /// Returns the image that takes place `place` of the batch number `batch`, counted from 0.
  Stored at(std::size_t batch, std::int64_t place) const;

 private:
  /// Puts the items into a random order, which depends on the epoch and on `stream`.
  void shuffle(std::vector<std::uint32_t>& items, std::uint32_t stream) const;
  void draw_evenly();

  const std::uint64_t key_;
  std::vector<std::int64_t> first_ = {0};  ///< index of each batch's first image, and the total
  /// The images of each class that has any; empty: each image is drawn once.
  std::vector<std::vector<std::uint32_t>> by_class_;
  std::vector<std::uint32_t> order_;  ///< order in epoch `epoch_`: image numbers in the stored order
  int epoch_ = -1;
};

/// Makes a provider of the data of `ordered` in which training sees the images of `range` in a random order,
/// new in every epoch and the same in every run with that seed. load_training_data(), or the first read of a
/// training batch, loads the whole range, which then stays in memory. Batches keep their sizes. Tests see the
/// stored order. With `balance`, training draws the classes of matrix 1 evenly; throws InputError if that has
/// none.
std::unique_ptr<Provider> make_shuffled_provider(std::unique_ptr<StoredProvider> ordered, BatchRange range,
                                                 std::uint64_t seed, bool balance = false);

}  // namespace convnet
