#include "providers/shuffle.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/philox.h"

namespace convnet {

ShuffledBatches::ShuffledBatches(const Provider& provider, BatchRange range, std::uint64_t seed)
    : provider_(provider), range_(range), seed_(seed) {}

DataBatch ShuffledBatches::load(int epoch, int batch) {
  if (batches_.empty()) {
    first_ = {0};
    for (int b = range_.first; b <= range_.last; ++b) {
      batches_.push_back(provider_.load(b));
      first_.push_back(first_.back() + batches_.back().images);
    }
  }
  if (order_epoch_ != epoch) {
    order_.resize(static_cast<std::size_t>(first_.back()));
    std::iota(order_.begin(), order_.end(), 0U);
    const std::uint64_t key = philox_key(seed_, "shuffle");
    for (std::size_t i = order_.size(); i > 1; --i) {
      const auto random = philox(key, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(epoch), 0, 0);
      const std::uint64_t word = std::uint64_t{random.value[0]} << 32 | random.value[1];
      std::swap(order_[i - 1], order_[static_cast<std::size_t>(word % i)]);
    }
    order_epoch_ = epoch;
  }
  const auto at = static_cast<std::size_t>(batch - range_.first);
  DataBatch out;
  out.images = batches_[at].images;
  for (std::size_t m = 0; m < batches_[at].matrices.size(); ++m) {
    const std::size_t image_bytes =
        out.images == 0 ? 0 : batches_[at].matrices[m].size() / static_cast<std::size_t>(out.images);
    std::vector<std::byte> gathered(batches_[at].matrices[m].size());
    for (std::int64_t i = 0; i < out.images; ++i) {
      const std::int64_t image = order_[static_cast<std::size_t>(first_[at] + i)];
      const auto owner = static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), image) -
                                                  first_.begin() - 1);
      std::memcpy(
          gathered.data() + static_cast<std::size_t>(i) * image_bytes,
          batches_[owner].matrices[m].data() + static_cast<std::size_t>(image - first_[owner]) * image_bytes,
          image_bytes);
    }
    out.matrices.push_back(std::move(gathered));
  }
  return out;
}

}  // namespace convnet
