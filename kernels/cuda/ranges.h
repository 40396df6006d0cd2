// Several ranges of elements that one launch processes as if they were contiguous.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace convnet::cuda {

/// The lengths of up to kMost ranges, for mapping an index over all of them to a range.
class Ranges {
 public:
  static constexpr int kMost = 32;  ///< limited, because the object is passed as an argument of the launch

  struct Place {
    int range;
    std::int64_t index;  ///< index within the range
  };

  bool full() const { return count_ == kMost; }
  void add(std::int64_t elements) {
    const std::int64_t begin = total();
    end_[count_++] = begin + elements;
  }
  std::int64_t total() const { return count_ == 0 ? 0 : end_[count_ - 1]; }
  int count() const { return count_; }
  /// Return the first element of a range and the one behind its last, in [0, total()].
  CONVNET_HD std::int64_t begin(std::int64_t range) const { return range == 0 ? 0 : end_[range - 1]; }
  CONVNET_HD std::int64_t end(std::int64_t range) const { return end_[range]; }

  /// Returns the position of element i of [0, total()).
  CONVNET_DEVICE Place find(std::int64_t i) const {
    int range = 0, last = count_ - 1;
    while (range < last) {
      const int middle = (range + last) / 2;
      if (i < end_[middle])
        last = middle;
      else
        range = middle + 1;
    }
    return {range, range == 0 ? i : i - end_[range - 1]};
  }

 private:
  std::int64_t end_[kMost];
  int count_ = 0;
};

}  // namespace convnet::cuda
