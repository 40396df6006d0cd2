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
/// one list, and the others in sorted ones.
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
    std::vector<Range> parts;
    for (const Range& range : ranges) {
      const bool whole = range.begin == 0 && range.end == bytes;
      (whole ? whole_ : parts).push_back(range);
      if (!whole) longest_part_ = std::max(longest_part_, range.end - range.begin);
    }
    if (parts.empty()) return;
    std::stable_sort(parts.begin(), parts.end(), earlier);
    if (!runs_.empty() && !earlier(parts.front(), runs_.back().back()))
      runs_.back().insert(runs_.back().end(), parts.begin(), parts.end());
    else
      runs_.push_back(std::move(parts));
    // Each run has more than twice as many ranges as the next, so there are few, and a range is moved seldom.
    while (runs_.size() > 1 && runs_[runs_.size() - 2].size() <= 2 * runs_.back().size()) {
      std::vector<Range> last = std::move(runs_.back());
      runs_.pop_back();
      std::vector<Range>& into = runs_.back();
      const auto sorted = static_cast<std::ptrdiff_t>(into.size());
      into.insert(into.end(), last.begin(), last.end());
      std::inplace_merge(into.begin(), into.begin() + sorted, into.end(), earlier);
    }
  }

  /// Calls visit(value) for each range that overlaps [begin, end).
  template <class Visit>
  void visit_overlapping(std::int64_t begin, std::int64_t end, const Visit& visit) const {
    for (const Range& range : whole_) {
      if (range.overlaps(begin, end)) visit(range.value);
    }
    for (const std::vector<Range>& run : runs_) {
      auto part = std::lower_bound(run.begin(), run.end(), begin - longest_part_,
                                   [](const Range& range, std::int64_t from) { return range.begin < from; });
      for (; part != run.end() && part->begin < end; ++part) {
        if (part->overlaps(begin, end)) visit(part->value);
      }
    }
  }

 private:
  static bool earlier(const Range& a, const Range& b) { return a.begin < b.begin; }

  std::vector<Range> whole_;
  std::vector<std::vector<Range>> runs_;  ///< the other ranges, each run by their begin
  std::int64_t longest_part_ = 0;
};

}  // namespace convnet
