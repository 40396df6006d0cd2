// Arithmetic of batch normalisation, compiled for host and device.
#pragma once

#include <cmath>

#include "convnet/base/host_device.h"

namespace convnet {

/// The mean of `count` values, and the sum of their squared distances from it. T is double, or a vector of
/// doubles.
template <class T>
struct Moments {
  double count = 0;
  T mean{}, squares{};

  /// Adds the values of `other`: Chan et al., "Updating formulae and a pairwise algorithm for computing
  /// sample variances", 1979.
  CONVNET_HD void merge(const Moments& other) {
    if (other.count == 0) return;
    const double share = other.count / (count + other.count);
    const T delta = other.mean - mean;
    mean += delta * share;
    squares += other.squares + delta * delta * (count * share);
    count += other.count;
  }
};

CONVNET_HD inline double inverse_deviation(float variance, float epsilon) {
  return 1 / std::sqrt(static_cast<double>(variance) + static_cast<double>(epsilon));
}

/// Returns the slope of a channel in y = (x - mean) * slope + shift.
CONVNET_HD inline float batch_norm_slope(float scale, float variance, float epsilon) {
  return static_cast<float>(static_cast<double>(scale) * inverse_deviation(variance, epsilon));
}

/// The coefficients of a channel in dx = slope * dy + (offset + drag * (x - mean)).
struct BatchNormGradient {
  float slope, offset, drag;
};
CONVNET_HD inline BatchNormGradient batch_norm_gradient(float scale, float variance, float epsilon,
                                                        float diff_scale, float diff_shift, double values) {
  const double inverse = inverse_deviation(variance, epsilon);
  const double slope = static_cast<double>(scale) * inverse;
  return {static_cast<float>(slope), static_cast<float>(-slope * static_cast<double>(diff_shift) / values),
          static_cast<float>(-slope * inverse * static_cast<double>(diff_scale) / values)};
}

/// Moves a channel's running statistics towards those of a batch of `values` values; see BatchNormTrack.
CONVNET_HD inline void track_batch_norm(float mean, float variance, double values, float factor,
                                        float& running_mean, float& running_variance) {
  if (values < 2) return;
  const auto unbiased = static_cast<float>(values / (values - 1));
  running_mean = (1 - factor) * running_mean + factor * mean;
  running_variance = (1 - factor) * running_variance + factor * (variance * unbiased);
}

}  // namespace convnet
