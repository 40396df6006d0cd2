// Arithmetic of costs, compiled for host and device: bounds of logarithms and divisors (log 0 is -50, as in
// cuda-convnet2), and errors where probabilities tie.
#pragma once

#include <cmath>
#include <cstdint>

#include "convnet/base/host_device.h"
#include "kernels/ops/costs.h"

namespace convnet {

constexpr double kLogFloor = -50;

CONVNET_HD inline double floored_log(double p) {
  const double log = std::log(p);
  return log < kLogFloor ? kLogFloor : log;  // keeps NaN
}

/// Returns weight * log(p), and 0 if the weight is 0, whatever p.
CONVNET_HD inline double weighted_log(double weight, double p) {
  return weight == 0 ? 0 : weight * floored_log(p);
}

/// The target of one image (ClassTargets).
struct ClassTarget {
  std::int32_t first, second;  ///< classes; equal if the image is not mixed
  float second_share;          ///< share of the second class, in [0,1)
  float smoothing, spread;     ///< spread: the probability that smoothing gives to each class
  float weight;                ///< weight of the image in the cost

  /// Returns whether both classes exist. Providers check labels, so that others are a bug in this program.
  CONVNET_HD bool valid(std::int64_t classes) const {
    return first >= 0 && first < classes && second >= 0 && second < classes;
  }
  CONVNET_HD float of(std::int64_t i) const {
    const float share = (i == first ? 1 - second_share : 0) + (i == second ? second_share : 0);
    return (1 - smoothing) * share + spread;
  }
  CONVNET_HD std::int32_t label() const { return second_share < 0.5F ? first : second; }
};

/// Reads the targets of images from memory.
struct ClassTargetReader {
  const std::int32_t* labels;
  const float* class_weights;  ///< weight of each class; null: all are 1
  std::int64_t classes;
  float smoothing;
  bool mixed;

  /// Returns the target of image `n`. Its weight is 1 where its classes are not valid.
  CONVNET_HD ClassTarget at(std::int64_t n) const {
    const std::int32_t* label = labels + n * (mixed ? kMixedLabelValues : 1);
    ClassTarget t{label[0], label[0], 0, smoothing, smoothing / static_cast<float>(classes), 1};
    if (mixed) {
      t.second = label[1];
      t.second_share = static_cast<float>(label[2]) / static_cast<float>(kMixedUnit);
    }
    if (class_weights != nullptr && t.valid(classes))
      t.weight = (1 - t.second_share) * class_weights[t.first] + t.second_share * class_weights[t.second];
    return t;
  }
};

/// The rank of an image's label among its classes.
struct Ranking {
  std::int64_t above = 0;  ///< classes more probable than the label
  std::int64_t tied = 0;   ///< classes exactly as probable, the label included
  bool finite = true;      ///< every probability is finite
};

/// Returns the probability that the label is not among the k most probable classes if ties are broken at
/// random.
CONVNET_HD inline double expected_error(const Ranking& r, std::int64_t k) {
  if (!r.finite || r.above >= k) return 1;
  if (r.above + r.tied <= k) return 0;
  return 1 - static_cast<double>(k - r.above) / static_cast<double>(r.tied);
}

}  // namespace convnet
