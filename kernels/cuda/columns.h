// Helpers of convolutions and locally-connected layers by matrix products. Their windows are copied into rows
// of a matrix ("columns", as in im2col), for as many images or positions at a time as fit into the memory
// that they may take.
#pragma once

#include "kernels/cuda/chunked.h"
#include "kernels/cuda/products.h"

namespace convnet::cuda {

/// [0, items) in chunks of equal size, but for the last one.
struct Chunks {
  Chunks(std::int64_t items_, std::int64_t bytes_per_item, std::int64_t most_bytes) : items(items_) {
    const std::int64_t most =
        std::max<std::int64_t>(bytes_per_item > 0 ? most_bytes / bytes_per_item : items, 1);
    count = (items + most - 1) / most;
    size = (items + count - 1) / count;
    count = (items + size - 1) / size;
  }
  std::int64_t items, size, count;
  std::int64_t begin(std::int64_t i) const { return i * size; }
  std::int64_t size_of(std::int64_t i) const { return std::min(size, items - begin(i)); }
};

/// The products of all chunks.
class ChunkGemms {
 public:
  /// `extent` of `gemm` becomes `per_item` for every item of the chunk. Where that is k, the chunks' products
  /// add up.
  ChunkGemms(Gemm gemm, std::int64_t Gemm::*extent, std::int64_t per_item, const Chunks& chunks,
             const Context& context) {
    const bool sums = extent == &Gemm::k;
    for (std::int64_t i = 0; i < chunks.count; ++i) {
      const std::int64_t wanted = chunks.size_of(i) * per_item;
      const bool as_before = i > (sums ? 1 : 0) && gemm.*extent == wanted;
      gemm.*extent = wanted;
      gemm.accumulate = gemm.accumulate || (sums && i > 0);
      gemms_.push_back(as_before ? gemms_.back() : prepare_gemm(gemm, context));
      workspace_bytes_ = std::max(workspace_bytes_, gemms_.back()->workspace_bytes());
    }
  }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  const PreparedGemm& operator[](std::int64_t chunk) const {
    return *gemms_[static_cast<std::size_t>(chunk)];
  }

 private:
  std::vector<std::shared_ptr<const PreparedGemm>> gemms_;
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace convnet::cuda
