// How batch norm walks over a tensor: in strips that stay in the first-level cache, with sums for each lane.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {

constexpr int kLanes = kUsualBlock;
using Floats = Lanes<float, kLanes>;
using Doubles = Lanes<double, kLanes>;

/// A piece of a tensor that stays in the first-level cache: rows of up to kLanes numbers, `stride` apart. A
/// lane holds values of one channel only.
struct Strip {
  std::int64_t offset, rows, stride, lanes;
};

/// The division of a tensor into strips. A block is the channels that share a strip; a group is some
/// consecutive images. If a channel has many values per image, a strip is a run of memory, and a block is
/// that of the layout (one channel, in plain layouts). If a channel has one value per image, the tensor is a
/// matrix with a row for each image; a strip is then some rows of kLanes columns.
class Cutting {
 public:
  Cutting(const ActivationView& view, std::int64_t images_per_group)
      : view_(view), columns_(view.spatial == 1), images_(columns_ ? kRows : images_per_group) {
    block_ = columns_ ? kLanes : view.block;
    blocks_ = (view.padded_c + block_ - 1) / block_;
    groups_ = (view.n + images_ - 1) / images_;
  }
  std::int64_t groups() const { return groups_; }
  std::int64_t blocks() const { return blocks_; }
  /// Returns the number of channels, rounded up to whole blocks.
  std::int64_t channels() const { return blocks_ * block_; }
  std::int64_t block_channels() const { return block_; }
  /// Returns the number of values that a channel has in a group.
  std::int64_t values(std::int64_t group) const { return (last(group) - group * images_) * view_.spatial; }
  std::int64_t channel(std::int64_t block, std::int64_t lane) const { return block * block_ + lane % block_; }

  /// Copies the values of a block's channels to the block's lanes. `per_channel` has channels() values.
  void spread(const std::vector<float>& per_channel, std::int64_t block, Floats& lanes) const {
    if (block_ == kLanes) return load_lanes(per_channel.data() + block * kLanes, AllLanes<kLanes>{}, lanes);
    for (std::int64_t j = 0; j < kLanes; ++j)
      lanes.set(j, per_channel[static_cast<std::size_t>(channel(block, j))]);
  }

  /// Calls body(group, block) for all, in parallel. Each thread goes through its groups from the last one to
  /// the first: the operation before this one has ended with the last images, which are still in the caches,
  /// and the one after it begins with the first ones.
  template <class Body>
  void for_pieces(const Body& body) const {
#pragma omp parallel if (view_.size() >= kParallelElements)
    {
      const std::int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
      const std::int64_t first = groups_ * blocks_ * thread / threads;
      const std::int64_t end = groups_ * blocks_ * (thread + 1) / threads;
      for (std::int64_t group = (end - 1) / blocks_; group >= first / blocks_; --group) {
        const std::int64_t begin = group * blocks_;
        for (std::int64_t i = std::max(first, begin); i < std::min(end, begin + blocks_); ++i)
          body(group, i - begin);
      }
    }
  }

  /// Calls body(group, first, end) for all ranges [first, end) of blocks of all groups, in parallel.
  template <class Body>
  void for_ranges(const Body& body) const {
    const BlockRanges ranges(groups_, blocks_);
#pragma omp parallel for collapse(2) schedule(static) if (view_.size() >= kParallelElements)
    for (std::int64_t group = 0; group < groups_; ++group)
      for (std::int64_t range = 0; range < ranges.count(); ++range)
        body(group, ranges.begin(range), ranges.begin(range + 1));
  }

  /// Calls body(block, strip) for the strips of a group in blocks [first, end), in the order of memory.
  template <class Body>
  void for_strips(std::int64_t group, std::int64_t first, std::int64_t end, const Body& body) const {
    const std::int64_t image = group * images_;
    if (columns_) {
      for (std::int64_t block = first; block < end; ++block) {
        const std::int64_t column = block * kLanes;
        body(block, Strip{image * view_.padded_c + column, last(group) - image, view_.padded_c,
                          std::min<std::int64_t>(kLanes, view_.padded_c - column)});
      }
      return;
    }
    const std::int64_t plane = view_.spatial * view_.block;
    const std::int64_t rows = plane / kLanes, rest = plane % kLanes;
    for (std::int64_t n = image; n < last(group); ++n) {
      for (std::int64_t block = first; block < end; ++block) {
        const std::int64_t offset = (n * blocks_ + block) * plane;
        for (std::int64_t row = 0; row < rows; row += kRows)
          body(block, Strip{offset + row * kLanes, std::min(kRows, rows - row), kLanes, kLanes});
        if (rest > 0) body(block, Strip{offset + rows * kLanes, 1, kLanes, rest});
      }
    }
  }

 private:
  static constexpr std::int64_t kRows = 256;
  std::int64_t last(std::int64_t group) const { return std::min(view_.n, (group + 1) * images_); }

  ActivationView view_;
  bool columns_;
  std::int64_t images_, block_ = 1, blocks_ = 0, groups_ = 0;
};

constexpr std::int64_t kReducedImages = 8;  // images of a group whose values are summed

/// Calls body(offset, lanes) for the rows of a strip; for whole rows, `lanes` is a constant.
template <class Body>
void for_rows(const Strip& s, const Body& body) {
  if (s.lanes == kLanes) {
    for (std::int64_t r = 0; r < s.rows; ++r) body(s.offset + r * s.stride, AllLanes<kLanes>{});
  } else {
    for (std::int64_t r = 0; r < s.rows; ++r)
      body(s.offset + r * s.stride, static_cast<std::size_t>(s.lanes));
  }
}

/// x += the numbers at `addend`.
template <class T, class Lanes>
[[gnu::always_inline]] inline void add_floats(const T* addend, Lanes lanes, Floats& x) {
  Floats more;
  load_lanes(addend, lanes, more);
  x += more;
}

/// Two sums for each lane, within a strip.
struct Sums {
  Floats a{}, b{};
};

/// Sums over the rows of a strip: step(offset, lanes, sums) adds a row. Four independent sums hide the
/// latency of additions.
template <class Step>
void reduce_rows(const Strip& s, const Step& step, Sums& total) {
  Sums s0, s1, s2, s3;
  const auto reduce = [&](auto lanes) {
    std::int64_t r = 0, at = s.offset;
    for (; r + 4 <= s.rows; r += 4, at += 4 * s.stride) {
      step(at, lanes, s0);
      step(at + s.stride, lanes, s1);
      step(at + 2 * s.stride, lanes, s2);
      step(at + 3 * s.stride, lanes, s3);
    }
    for (; r < s.rows; ++r, at += s.stride) step(at, lanes, s0);
  };
  if (s.lanes == kLanes)
    reduce(AllLanes<kLanes>{});
  else
    reduce(static_cast<std::size_t>(s.lanes));
  total.a = (s0.a + s1.a) + (s2.a + s3.a);
  total.b = (s0.b + s1.b) + (s2.b + s3.b);
}

}  // namespace convnet::cpu::own
