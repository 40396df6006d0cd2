// The power function of the response normalisations.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace convnet::cpu {

/// Returns x^p for x > 0, computed as 2^(p log2 x), and NaN for anything else. The relative error is below
/// 2e-7 * (1 + |p log2 x|). It is only arithmetic, so that loops over it vectorise; std::pow takes ten times
/// as long.
inline float power(float x, float p) {
  // x = 2^e (1 + u) with 1 + u in [sqrt(1/2), sqrt(2))
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::int32_t e = static_cast<std::int32_t>(bits - 0x3F3504F3U) >> 23;
  const float u = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(e) << 23)) - 1;
  // log2(1 + u) / u and, below, 2^v: polynomials through the Chebyshev points of their ranges
  float log2 = 0.1231096847F;
  log2 = log2 * u - 0.2058618805F;
  log2 = log2 * u + 0.2160782255F;
  log2 = log2 * u - 0.2391698814F;
  log2 = log2 * u + 0.2879032609F;
  log2 = log2 * u - 0.3606932681F;
  log2 = log2 * u + 0.4809107535F;
  log2 = log2 * u - 0.7213474682F;
  log2 = log2 * u + 1.442695004F;
  float y = p * (static_cast<float>(e) + log2 * u);
  y = y < -126 ? -126 : y;
  y = y > 127 ? 127 : y;
  // y = k + v with k an integer and v in [-1/2, 1/2]; the addition leaves k in the lowest bits
  constexpr float kRounder = 0x1.8p23F;
  const float rounded = y + kRounder;
  const float v = y - (rounded - kRounder);
  float exp2 = 0.000154614447F;
  exp2 = exp2 * v + 0.001340042818F;
  exp2 = exp2 * v + 0.009618056679F;
  exp2 = exp2 * v + 0.05550327227F;
  exp2 = exp2 * v + 0.2402265092F;
  exp2 = exp2 * v + 0.6931472067F;
  exp2 = exp2 * v + 1;
  const auto scale = std::bit_cast<float>((std::bit_cast<std::uint32_t>(rounded) << 23) + 0x3F800000U);
  return x > 0 ? exp2 * scale : std::numeric_limits<float>::quiet_NaN();
}

/// Returns x^(-1/4) for finite x > 0, and NaN for anything else. The first guess, from the bits of x, has a
/// relative error of 3.2 %. Each of the `Steps` of Newton's method for y^-4 = x turns the error e into 2.5
/// e^2: 2e-5 after two steps, 2e-7 (rounding) after three. This is faster than roots and a division.
template <int Steps = 3>
inline float inverse_fourth_root(float x) {
  const float normal = x < std::numeric_limits<float>::min() ? std::numeric_limits<float>::min() : x;
  auto y = std::bit_cast<float>(0x4F584000U - (std::bit_cast<std::uint32_t>(normal) >> 2));
  for (int step = 0; step < Steps; ++step) {
    const float square = y * y;
    y *= 1.25F - 0.25F * (normal * square * square);
  }
  return x > 0 ? y : std::numeric_limits<float>::quiet_NaN();
}

/// The factors of response normalisations for one x.
struct NegativePowers {
  float power;    ///< x^-p
  float inverse;  ///< 1 / x
};

/// Computes x^-3/4 and 1 / x. Results that are stored as bf16 (`T`), which has 8 bits, need fewer of Newton's
/// steps.
template <class T>
struct NegativeThreeQuarters {
  NegativePowers operator()(float x) const {
    const float root = inverse_fourth_root < sizeof(T) == 2 ? 2 : 3 > (x), square = root * root;
    return {square * root, square * square};
  }
};

/// Calls f(g) with a function g(x) that returns the NegativePowers of x > 0 for the exponent p.
template <class T, class F>
void with_negative_powers(float p, const F& f) {
  if (p == 0.75F) {  // the power in most nets
    f(NegativeThreeQuarters<T>{});
  } else {
    f([p](float x) { return NegativePowers{power(x, -p), 1 / x}; });
  }
}

}  // namespace convnet::cpu
