// Sets of numbers that grow together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace convnet {

/// The numbers below a count in disjoint sets, at first each in a set of its own (union-find).
class DisjointSets {
 public:
  explicit DisjointSets(std::size_t count) : parents_(count) {
    std::iota(parents_.begin(), parents_.end(), std::size_t{0});
  }
  /// Returns the least number of the set that `i` is in.
  std::size_t find(std::size_t i) {
    while (parents_[i] != i) i = parents_[i] = parents_[parents_[i]];
    return i;
  }
  void join(std::size_t a, std::size_t b) {
    const auto [least, other] = std::minmax({find(a), find(b)});
    parents_[other] = least;
  }

 private:
  std::vector<std::size_t> parents_;
};

}  // namespace convnet
