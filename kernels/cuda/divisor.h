// Fast division by numbers that the host knows in advance. GPUs have no instruction for division.
#pragma once

#include <bit>
#include <cstdint>

#include "convnet/base/host_device.h"

namespace convnet::cuda {

struct Quotient {
  std::int64_t value, rest;
};

/// Divides by multiplying (Granlund and Montgomery, "Division by invariant integers using multiplication",
/// 1994). Let 2^bits be the smallest power of two that is at least `value`. The multiplier is
/// (2^(31+bits) + e) / value, where e is at least 1 and at most `value`. For a < 2^31 the error of the
/// product is too small to change the quotient.
class Divisor {
 public:
  /// `value` may be 0, the side of an empty tensor, but then nothing may be divided.
  explicit Divisor(std::int64_t value) : value_(value) {
    if (value < 1 || value >= kLimit) return;
    bits_ = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(value - 1)));
    multiplier_ = static_cast<std::uint32_t>(
        (std::uint64_t{1} << (31 + bits_)) / static_cast<std::uint64_t>(value) + 1);
  }

  static constexpr std::int64_t kLimit = std::int64_t{1} << 31;

  /// Returns the quotient of 0 <= a < kLimit.
  CONVNET_HD std::uint32_t quotient(std::uint32_t a) const {
    const std::uint32_t twice = 2 * a;
    return static_cast<std::uint32_t>(std::uint64_t{twice} * multiplier_ >> 32) >> bits_;
  }
  CONVNET_HD Quotient divide(std::uint32_t a) const {
    const std::uint32_t q = quotient(a);
    return {q, a - q * static_cast<std::uint32_t>(value_)};
  }
  /// Returns the quotient of an index, which is seldom as large as kLimit.
  CONVNET_HD Quotient divide_index(std::int64_t a) const {
    return a < kLimit ? divide(static_cast<std::uint32_t>(a)) : divide_any(a);
  }
  /// Returns the quotient of any a >= 0, slowly.
  CONVNET_HD Quotient divide_any(std::int64_t a) const {
    const std::int64_t q = a / value_;
    return {q, a - q * value_};  // a % value_ would be a second division
  }

 private:
  std::int64_t value_;
  std::uint32_t multiplier_ = 0, bits_ = 0;  ///< zeros for values from kLimit on: such quotients are 0
};

}  // namespace convnet::cuda
