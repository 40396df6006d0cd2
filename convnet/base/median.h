// The median and other quantiles of measured numbers.
#pragma once

#include <algorithm>
#include <cmath>
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

/// Returns the smallest value that at least this share of the values does not exceed; 0 if there are no
/// values.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  return values[std::clamp(static_cast<std::size_t>(rank), std::size_t{1}, values.size()) - 1];
}

}  // namespace convnet
