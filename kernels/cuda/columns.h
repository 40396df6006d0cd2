// Code shared by convolutions and locally-connected layers that use matrix products. Windows are copied into
// the rows of a matrix ("columns", as in im2col), for as many images or positions at a time as the limit of
// memory allows.
#pragma once

#include "kernels/cuda/chunked.h"
#include "kernels/cuda/products.h"

namespace convnet::cuda {

/// The products of all chunks.
class ChunkGemms {
 public:
  /// The extent `extent` (m, n or k) of `gemm` becomes `per_item` times the number of items in the chunk. If
  /// it is k, the products of the chunks are summed.
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
