// Computes means and variances of channels from those of parts of a batch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convnet::cpu {

/// Merges the moments of `groups` groups of values in their order (Moments::merge), and writes the result to
/// the first group. `means` and `squares` are (group, channel): means, and sums of squares about them.
/// count_of(group) is the number of values of a channel in a group.
template <class Count>
void merge_moments(std::int64_t groups, std::int64_t channels, const Count& count_of, double* means,
                   double* squares) {
  double count = groups > 0 ? static_cast<double>(count_of(0)) : 0;
  for (std::int64_t group = 1; group < groups; ++group) {
    const auto more = static_cast<double>(count_of(group));
    const double share = more / (count + more);
    const double *m = means + group * channels, *s = squares + group * channels;
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const double delta = m[c] - means[c];
      means[c] += delta * share;
      squares[c] += s[c] + delta * delta * count * share;
    }
    count += more;
  }
}

/// Writes the mean and variance of each channel, which has `values` values; 0 and 1 if it has none.
inline void write_moments(std::int64_t channels, std::int64_t values, const double* means,
                          const double* squares, float* mean, float* variance) {
  for (std::int64_t c = 0; c < channels; ++c) {
    mean[c] = values == 0 ? 0.0F : static_cast<float>(means[c]);
    const double v = values == 0 ? 1.0 : squares[c] / static_cast<double>(values);
    variance[c] = static_cast<float>(v < 0 ? 0.0 : v);  // rounding; keeps NaN
  }
}

}  // namespace convnet::cpu
