// The median of measured numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace convnet {

/// Returns the median: the value in the middle, or the mean of the two in the middle if the number of values
/// is even; 0 if there are no values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace convnet
