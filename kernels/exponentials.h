// The exponential function and its relatives for loops over many numbers: without branches and calls, so that
// compilers compute as many numbers at a time as a register holds, and with the same arithmetic on host and
// device. Polynomials were fitted by Remez's algorithm; functions are within 3e-7 of their values,
// relatively, unless they say otherwise. V is float, or a vector of floats (GCC's vector extension). NaN
// gives NaN.
#pragma once

#include <cstdint>
#include <cstring>

#include "convnet/base/host_device.h"

namespace convnet::math {

/// Integers of as many bits as the numbers of V.
template <class V>
struct IntegersOf {
  using Type = decltype(V{} < V{});
};
template <>
struct IntegersOf<float> {
  using Type = std::int32_t;
};
template <class V>
using Integers = typename IntegersOf<V>::Type;

/// Returns x, but at most `most`.
template <class V>
CONVNET_HD inline V at_most(V x, float most) {
  return x > most ? V{} + most : x;
}
/// Returns x, but at least `least` and at most `most`.
template <class V>
CONVNET_HD inline V clamped(V x, float least, float most) {
  return x < least ? V{} + least : at_most(x, most);
}

/// x = n ln 2 + r with |r| <= ln 2 / 2: power = 2^n, for -127 <= n <= 128, of which 2^-127 is 0 and 2^128
/// infinite, and m = e^r - 1.
template <class V>
struct ExpParts {
  V power, m;

  CONVNET_HD explicit ExpParts(V x) {
    // 1.5 * 2^23 and the bias of exponents: a sum with it is a whole number, whose last bits are an exponent.
    constexpr float kRounder = 12582912 + 127;
    constexpr float kLn2 = 0.693359375F, kLn2Rest = -2.12194440e-4F;  // times n, the first one is exact
    const V sum = x * 1.44269504F + kRounder, n = sum - kRounder;
    Integers<V> bits;
    std::memcpy(&bits, &sum, sizeof bits);
    bits = bits << 23;
    std::memcpy(&power, &bits, sizeof power);
    const V r = x - n * kLn2 - n * kLn2Rest;
    const V terms = (((r * 0.001394664362F + 0.008366710422F) * r + 0.04166627944F) * r + 0.1666654205F) * r +
                    0.5000000063F;
    m = r + r * r * terms;
  }
};

/// Returns e^x; infinity for x > 88.37, and 0 for x < -87.68.
template <class V>
CONVNET_HD inline V exp(V x) {
  const ExpParts<V> parts(clamped(x, -88, 89));
  return parts.power * (1.0F + parts.m);
}

/// Returns e^x - 1 for x <= 88, and of 88 for larger x.
template <class V>
CONVNET_HD inline V expm1(V x) {
  const ExpParts<V> parts(clamped(x, -25, 88));
  return parts.power * parts.m + (parts.power - 1.0F);
}

template <class V>
CONVNET_HD inline V tanh(V x) {
  const V size = x < 0 ? -x : x;
  const V grown = expm1(2.0F * at_most(size, 10));
  const V of_size = grown / (grown + 2.0F);
  return x < 0 ? -of_size : of_size;
}

/// Returns 1 / (1 + e^-x).
template <class V>
CONVNET_HD inline V logistic(V x) {
  return 1.0F / (1.0F + exp(-x));
}

/// Returns ln(1 + x) for 0 <= x <= 1. With s = x / (2 + x), that is 2 artanh(s).
template <class V>
CONVNET_HD inline V log1p_of_unit(V x) {
  const V s = x / (2.0F + x), u = s * s;
  return 2.0F * (s + s * u * (((u * 0.1401222833F + 0.1399957045F) * u + 0.2001084957F) * u + 0.3333320656F));
}

/// The distribution function of a normal variable at x, and its density times sqrt(2 pi). For x < 0 the
/// errors are 1e-7 and the square of x times 6e-8, relatively.
template <class V>
struct Normal {
  V below, density;

  CONVNET_HD explicit Normal(V x) {
    density = exp(-0.5F * x * x);
    // erfc(z) e^(z^2) / t with z = |x| / sqrt(2) and t = 1 / (1 + z / 2) is nearly a polynomial.
    const V t = 1.0F / (1.0F + 0.3535533906F * (x < 0 ? -x : x));
    V terms = t * -0.05566820186F + 0.2701055027F;
    terms = ((terms * t - 0.4615913707F) * t + 0.2536398112F) * t - 0.01302773694F;
    terms = ((terms * t + 0.1982220125F) * t + 0.2439333156F) * t + 0.2822976777F;
    const V tail = 0.5F * t * (terms * t + 0.2820890871F) * density;
    below = x < 0 ? tail : 1.0F - tail;
  }
};

}  // namespace convnet::math
