// A list of ranges of one buffer that finds those that overlap a given range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace convnet {

/// Values that each belong to a range of bytes of a buffer. Most uses touch a whole buffer, or one of many
/// parts of similar length (the shards of a matrix). Therefore ranges that cover the whole buffer are kept in
/// one list, and the others sorted in another.
template <class T>
class RangeList {
 public:
  struct Range {
    std::int64_t begin = 0, end = 0;
    T value{};
    bool overlaps(std::int64_t from, std::int64_t to) const { return begin < to && from < end; }
  };

  /// Adds ranges of the buffer, which has `bytes` bytes.
  void add(const std::vector<Range>& ranges, std::int64_t bytes) {
    const auto sorted = static_cast<std::ptrdiff_t>(parts_.size());
    for (const Range& range : ranges) {
      const bool whole = range.begin == 0 && range.end == bytes;
      (whole ? whole_ : parts_).push_back(range);
      if (!whole) longest_part_ = std::max(longest_part_, range.end - range.begin);
    }
    const auto earlier = [](const Range& a, const Range& b) { return a.begin < b.begin; };
    if (std::is_sorted(parts_.begin() + std::max<std::ptrdiff_t>(0, sorted - 1), parts_.end(), earlier))
      return;
    std::stable_sort(parts_.begin() + sorted, parts_.end(), earlier);
    std::inplace_merge(parts_.begin(), parts_.begin() + sorted, parts_.end(), earlier);
  }

  /// Calls visit(value) for each range that overlaps [begin, end).
  template <class Visit>
  void visit_overlapping(std::int64_t begin, std::int64_t end, const Visit& visit) const {
    for (const Range& range : whole_) {
      if (range.overlaps(begin, end)) visit(range.value);
    }
    auto part = std::lower_bound(parts_.begin(), parts_.end(), begin - longest_part_,
                                 [](const Range& range, std::int64_t from) { return range.begin < from; });
    for (; part != parts_.end() && part->begin < end; ++part) {
      if (part->overlaps(begin, end)) visit(part->value);
    }
  }

 private:
  std::vector<Range> whole_;
  std::vector<Range> parts_;  ///< by their begin
  std::int64_t longest_part_ = 0;
};

}  // namespace convnet
