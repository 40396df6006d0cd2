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
  /// Makes the order of an epoch; the other functions then describe it.
  void prepare(int epoch);

  /// An image in the stored order.
  struct Stored {
    std::size_t batch = 0;  ///< counted from 0
    std::int64_t image = 0;
  };
  /// Returns the image that takes place `place` of the batch number `batch`, counted from 0.
  Stored at(std::size_t batch, std::int64_t place) const;

 private:
  const std::uint64_t key_;
  std::vector<std::int64_t> first_ = {0};  ///< index of each batch's first image, and the total
  std::vector<std::uint32_t> order_;       ///< order in epoch `epoch_`: image numbers in the stored order
  int epoch_ = -1;
};

/// Makes a provider of the data of `ordered` in which training sees the images of `range` in a random order,
/// new in every epoch and the same in every run with that seed. load_training_data(), or the first read of a
/// training batch, loads the whole range, which then stays in memory. Batches keep their sizes. Tests see the
/// stored order.
std::unique_ptr<Provider> make_shuffled_provider(std::unique_ptr<StoredProvider> ordered, BatchRange range,
                                                 std::uint64_t seed);

}  // namespace convnet
