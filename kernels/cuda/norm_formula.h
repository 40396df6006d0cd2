// The formula of response normalisation, across and within maps.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cuda/windows.h"

namespace convnet::cuda {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// GPUs have instructions for the logarithm, wrong by 2^-21 near 1 and by 2 ulp elsewhere, and for quotients,
// wrong by 2 ulp. Exact ones take ten times as many, which would be more time than memory needs.
#if defined(__CUDA_ARCH__)
__device__ inline float logarithm(float x) { return __log2f(x); }
__device__ inline float quotient(float a, float b) { return __fdividef(a, b); }
#else
inline float logarithm(float x) { return std::log2(x); }
inline float quotient(float a, float b) { return a / b; }
#endif

/// x^p for x > 0, NaN for anything else. std::pow would be slower, and more exact than is of use.
CONVNET_HD inline float power(float x, float p) { return x > 0 ? std::exp2(p * logarithm(x)) : kNaN; }

/// y = x d^-power with the denominator d = min_div + factor * (sum of squares over the window), and its
/// gradient dx_i = dy_i d_i^-power + slope x_i * (sum of the ratios of all whose windows hold i).
struct Formula {
  float min_div, factor, exponent, slope;

  template <class Norm>
  Formula(const Norm& p, std::int64_t window)
      : min_div(p.min_div),
        factor(p.scale / static_cast<float>(window)),
        exponent(-p.power),
        slope(-2 * p.power * factor) {}

  CONVNET_HD float normalised(float x, float squares) const {
    return x * power(min_div + factor * squares, exponent);
  }
  struct Gradient {
    float direct, ratio;
  };
  CONVNET_HD Gradient gradient(float x, float dy, float squares) const {
    const float d = min_div + factor * squares;
    const float f = power(d, exponent);
    // If d = 0, the neighbours must not see the NaN.
    return {dy * f, x == 0 ? 0 : dy * x * quotient(f, d)};
  }
};

/// Returns the windows of `size` that begin size/2 before their middle.
inline Windows centred_windows(std::int64_t size) { return {-(size / 2), 1, size}; }

}  // namespace convnet::cuda
