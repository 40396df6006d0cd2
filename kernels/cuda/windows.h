// Windows along one dimension: over rows, columns or maps. They use 32 bits, which is fast on GPUs.
#pragma once

#include <cstdint>

#include "kernels/cuda/divisor.h"

namespace convnet::cuda {

/// The integers of [begin, end).
struct Range {
  int begin, end;
  CONVNET_HD int count() const { return end > begin ? end - begin : 0; }
};

/// Windows along one dimension. Window i is [start + stride * i, start + stride * i + size), clipped to [0,
/// side).
class Windows {
 public:
  int start, stride, size;  ///< the constructor's arguments

  Windows(std::int64_t start_, std::int64_t stride_, std::int64_t size_)
      : start(static_cast<int>(start_)),
        stride(static_cast<int>(stride_)),
        size(static_cast<int>(size_)),
        by_stride_(stride_) {}

  CONVNET_HD int origin(int i) const { return start + stride * i; }
  CONVNET_HD Range window(int i, int side) const {
    const int begin = origin(i), end = begin + size;
    return {begin > 0 ? begin : 0, end < side ? end : side};
  }
  /// Returns the indices of those of the first `windows` windows that contain `at`.
  CONVNET_HD Range holding(int at, int windows) const {
    const int since_start = at - start, since_end = since_start - size;  // of window 0
    const int begin = since_end < 0 ? 0 : periods(since_end) + 1;
    const int end = since_start < 0 ? 0 : periods(since_start) + 1;
    return {begin, end < windows ? end : windows};
  }

 private:
  CONVNET_HD int periods(int length) const {
    return static_cast<int>(by_stride_.quotient(static_cast<std::uint32_t>(length)));
  }
  Divisor by_stride_;
};

}  // namespace convnet::cuda
