// Windows along one dimension: over rows, columns or maps. They use 32 bits, which is fast on GPUs.
#pragma once

#include <cstdint>

#include "kernels/cuda/divisor.h"
#include "kernels/ops/windows.h"

namespace convnet::cuda {

/// The integers of [begin, end).
struct Range {
  int begin, end;
  CONVNET_HD int count() const { return end > begin ? end - begin : 0; }
};

/// Windows along one dimension. Window i is [start + stride * i, start + stride * i + extent), clipped to [0,
/// side); its taps are `dilation` apart.
class Windows {
 public:
  int start, stride, size;  ///< the constructor's arguments
  int dilation, extent;     ///< from one tap to the next, and of all taps

  Windows(std::int64_t start_, std::int64_t stride_, std::int64_t size_, std::int64_t dilation_ = 1)
      : start(static_cast<int>(start_)),
        stride(static_cast<int>(stride_)),
        size(static_cast<int>(size_)),
        dilation(static_cast<int>(dilation_)),
        extent(static_cast<int>((size_ - 1) * dilation_ + 1)),
        by_stride_(stride_) {}
  explicit Windows(const WindowLine& line) : Windows(line.start, line.stride, line.size, line.dilation) {}

  CONVNET_HD int origin(int i) const { return start + stride * i; }
  CONVNET_HD Range window(int i, int side) const {
    const int begin = origin(i), end = begin + extent;
    return {begin > 0 ? begin : 0, end < side ? end : side};
  }
  /// Returns the indices of those of the first `windows` windows that contain `at`, on a tap or between taps.
  CONVNET_HD Range holding(int at, int windows) const {
    const int since_start = at - start, since_end = since_start - extent;  // of window 0
    const int begin = since_end < 0 ? 0 : periods(since_end) + 1;
    const int end = since_start < 0 ? 0 : periods(since_start) + 1;
    return {begin, end < windows ? end : windows};
  }
  /// Returns the tap of window i that lies on `at`, which the window contains; -1 if `at` is between taps.
  CONVNET_HD int tap(int at, int i) const {
    const int offset = at - origin(i);
    if (dilation == 1) return offset;
    return offset % dilation == 0 ? offset / dilation : -1;
  }

 private:
  CONVNET_HD int periods(int length) const {
    return static_cast<int>(by_stride_.quotient(static_cast<std::uint32_t>(length)));
  }
  Divisor by_stride_;
};

}  // namespace convnet::cuda
