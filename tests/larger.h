// The larger of two differences, for tests that keep the worst one.
#pragma once

#include <algorithm>
#include <cmath>

namespace convnet::test {

/// Returns the larger one; NaN, which std::max() might pass over, is larger than any.
inline double larger(double worst, double difference) {
  return std::isnan(worst) || std::isnan(difference) ? INFINITY : std::max(worst, difference);
}

}  // namespace convnet::test
