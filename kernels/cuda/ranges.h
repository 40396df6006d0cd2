// Several ranges of elements that one launch processes as if they were contiguous.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/layout.h"

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

/// Cuts several ranges into pieces, each of which a team of threads processes, so that the range of an
/// element is looked up once for each piece.
class Pieces {
 public:
  static constexpr std::int64_t kPiece = 4096;

  struct Place {
    int range;
    std::int64_t begin, end;  ///< elements of the range
  };

  bool full() const { return pieces_.full(); }
  void add(std::int64_t elements) {
    elements_[pieces_.count()] = elements;
    pieces_.add((elements + kPiece - 1) / kPiece);
  }
  std::int64_t total() const { return pieces_.total(); }
  int count() const { return pieces_.count(); }
  CONVNET_DEVICE Place find(std::int64_t piece) const {
    const Ranges::Place at = pieces_.find(piece);
    const std::int64_t begin = at.index * kPiece, all = elements_[at.range];
    return {at.range, begin, begin + kPiece < all ? begin + kPiece : all};
  }

 private:
  Ranges pieces_;
  std::int64_t elements_[Ranges::kMost];
};

/// Work on several runs of floats, with their pieces: runs.at<Lanes>(run, i) works on vector i of a run,
/// whose memory must be aligned to vectors if runs.aligned[run].
template <class Runs>
struct OverRuns {
  Pieces pieces;
  Runs runs;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t i) const {
    const Pieces::Place at = pieces.find(i);
    std::int64_t begin = at.begin;
    if (runs.aligned[at.range]) {
      const std::int64_t vectors = at.end / kLanes;
      CONVNET_UNROLL_BY(4)
      for (std::int64_t k = begin / kLanes + team.rank(); k < vectors; k += team.size())
        runs.template at<kLanes>(at.range, k);
      begin = vectors * kLanes;
    }
    for (std::int64_t k = begin + team.rank(); k < at.end; k += team.size()) runs.template at<1>(at.range, k);
  }
};

}  // namespace convnet::cuda
