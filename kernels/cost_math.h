// Arithmetic of costs, compiled for host and device: how they bound logarithms and divisors (REFERENCE: log 0
// = -50), and share ties.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/functors.h"

namespace convnet {

constexpr double kLogFloor = -50;

/// The smallest divisor of gradients.
inline float smallest_divisor() { return static_cast<float>(std::exp(kLogFloor)); }

CONVNET_HD inline float floored(float p, float floor) { return p < floor ? floor : p; }  // keeps NaN

CONVNET_HD inline double floored_log(double p) {
  const double log = std::log(p);
  return log < kLogFloor ? kLogFloor : log;  // keeps NaN
}

/// weight * log(p); nothing where the weight is 0, whatever p.
CONVNET_HD inline double weighted_log(double weight, double p) {
  return weight == 0 ? 0 : weight * floored_log(p);
}

/// The rank of an image's label among its classes.
struct Ranking {
  std::int64_t above = 0;  ///< classes more probable than the label
  std::int64_t tied = 0;   ///< classes exactly as probable, the label included
  bool finite = true;      ///< every probability is
};

/// The chance that the label is not among the k most probable classes, ties broken at random.
CONVNET_HD inline double expected_error(const Ranking& r, std::int64_t k) {
  if (!r.finite || r.above >= k) return 1;
  if (r.above + r.tied <= k) return 0;
  return 1 - static_cast<double>(k - r.above) / static_cast<double>(r.tied);
}

}  // namespace convnet
