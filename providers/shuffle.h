// Training batches in shuffled order.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "providers/provider.h"

namespace convnet {

/// The images of a range in a random order, new in every epoch and the same in every run with that seed.
/// Keeps the whole range in memory. Batches keep their sizes. One caller at a time.
class ShuffledBatches {
 public:
  ShuffledBatches(const Provider& provider, BatchRange range, std::uint64_t seed);
  DataBatch load(int epoch, int batch);

 private:
  const Provider& provider_;
  BatchRange range_;
  std::uint64_t seed_;
  std::vector<DataBatch> batches_;    ///< loaded at the first call
  std::vector<std::int64_t> first_;   ///< index of each batch's first image, and the total
  std::vector<std::uint32_t> order_;  ///< of `order_epoch_`
  int order_epoch_ = -1;
};

}  // namespace convnet
