// How costs bound logarithms and divisors (REFERENCE: log 0 = -50).
#pragma once

#include <cmath>

namespace convnet::cpu {

constexpr double kLogFloor = -50;

/// The smallest divisor of gradients.
inline float smallest_divisor() { return static_cast<float>(std::exp(kLogFloor)); }

inline float floored(float p, float floor) { return p < floor ? floor : p; }  // keeps NaN

}  // namespace convnet::cpu
