// Converts floating-point numbers of 16 bits to f32.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace convnet {

/// Returns the value of IEEE 754 half precision: 1 bit of sign, 5 of exponent (bias 15), 10 of mantissa.
inline float from_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float magnitude = exponent == 31  ? mantissa == 0 ? std::numeric_limits<float>::infinity()
                                                          : std::numeric_limits<float>::quiet_NaN()
                           : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                          : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// Returns the value of a bf16, the upper half of an f32.
inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

}  // namespace convnet
