#include "kernels/cuda/divisor.h"

#include <vector>

#include "tests/catch.h"

using convnet::cuda::Divisor;

TEST_CASE("division by a known number gives quotient and rest", "[cuda]") {
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  // Around powers of two, and of the quotients' steps, the multipliers are least exact.
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d <= 1000; ++d) divisors.push_back(d);
  for (int bit = 10; bit < 34; ++bit)
    for (std::int64_t d : {-1, 0, 1}) divisors.push_back((std::int64_t{1} << bit) + d);
  for (const std::int64_t d : {3025, 50176, 64 * 3025, 715827883, 1431655766, 2147480000})
    divisors.push_back(d);
  std::int64_t wrong = 0;
  for (const std::int64_t d : divisors) {
    const Divisor by(d);
    const auto check = [&](std::int64_t a) {
      if (a < 0 || a >= kLimit) return;
      const auto [value, rest] = by.divide(static_cast<std::uint32_t>(a));
      wrong += value != a / d || rest != a % d;
      const auto any = by.divide_any(a);
      wrong += any.value != value || any.rest != rest;
    };
    for (std::int64_t a = 0; a < 2000; ++a) check(a);
    for (std::int64_t a = kLimit - 2000; a < kLimit; ++a) check(a);
    // The last multiples below the limit, where an error would be largest.
    const std::int64_t last = (kLimit - 1) / d;
    for (std::int64_t k = last > 1000 ? last - 1000 : 0; k <= last; ++k)
      for (std::int64_t a = k * d - 1; a <= k * d + 1; ++a) check(a);
  }
  CHECK(wrong == 0);
}
