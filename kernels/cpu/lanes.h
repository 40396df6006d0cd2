// Numbers in registers, in vectors that are no longer than the processor's.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/interleave.h"

namespace convnet::cpu {

/// The length of a register in bytes.
#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif

/// The channels that lie together in the layouts that kernels of the instruction set choose.
constexpr int kUsualBlock = kRegisterBytes == 64 ? 16 : 8;

/// N numbers of type T, zeros at first. Where a vector is longer than a register, compilers compare and
/// convert its numbers one after the other, and load it through memory; here it is as many vectors as it
/// needs.
template <class T, int N>
class Lanes {
 public:
  static constexpr int kPart = std::min(N, kRegisterBytes / static_cast<int>(sizeof(T)));
  static constexpr int kParts = N / kPart;
  static_assert(N % kPart == 0);
  using Part = typename Vector<T, kPart>::Type;

  T operator[](std::int64_t lane) const { return part(lane / kPart)[lane % kPart]; }
  void set(std::int64_t lane, T value) { part(lane / kPart)[lane % kPart] = value; }

  /// Returns f(parts of `lanes`...) for all parts: an operation that has no operator here.
  template <class F, class... More>
  [[gnu::always_inline]] static Lanes each(const F& f, const More&... lanes) {
    Lanes result;
    for (int i = 0; i < kParts; ++i) result.part(i) = f(lanes.part(i)...);
    return result;
  }

  [[gnu::always_inline]] Lanes& operator+=(const Lanes& b) { return *this = *this + b; }
  [[gnu::always_inline]] Lanes& operator-=(const Lanes& b) { return *this = *this - b; }
  [[gnu::always_inline]] friend Lanes operator+(const Lanes& a, const Lanes& b) {
    return each([](const Part& x, const Part& y) { return x + y; }, a, b);
  }
  [[gnu::always_inline]] friend Lanes operator-(const Lanes& a, const Lanes& b) {
    return each([](const Part& x, const Part& y) { return x - y; }, a, b);
  }
  [[gnu::always_inline]] friend Lanes operator*(const Lanes& a, const Lanes& b) {
    return each([](const Part& x, const Part& y) { return x * y; }, a, b);
  }
  [[gnu::always_inline]] friend Lanes operator*(const Lanes& a, T b) {
    return each([b](const Part& x) { return x * b; }, a);
  }
  [[gnu::always_inline]] friend Lanes operator/(const Lanes& a, T b) {
    return each([b](const Part& x) { return x / b; }, a);
  }

  [[gnu::always_inline]] Part& part(std::int64_t i) { return parts_[static_cast<std::size_t>(i)]; }
  [[gnu::always_inline]] const Part& part(std::int64_t i) const {
    return parts_[static_cast<std::size_t>(i)];
  }

 private:
  std::array<Part, kParts> parts_{};
};

/// The number of all lanes, as a constant.
template <int N>
using AllLanes = std::integral_constant<std::size_t, N>;

/// Loads the first `count` lanes from memory with f32 or bf16; the others are zeros. `count` may be AllLanes.
template <int N, class Stored, class Count>
[[gnu::always_inline]] inline void load_lanes(const Stored* p, Count count, Lanes<float, N>& lanes) {
  constexpr int kPart = Lanes<float, N>::kPart;
  if constexpr (std::is_same_v<Count, AllLanes<N>>) {
    for (int i = 0; i < Lanes<float, N>::kParts; ++i) {
      if constexpr (std::is_same_v<Stored, float>) {
        std::memcpy(&lanes.part(i), p + i * kPart, kPart * sizeof *p);
      } else {
        typename Vector<std::uint16_t, kPart>::Type stored;
        std::memcpy(&stored, p + i * kPart, kPart * sizeof *p);
        widen<kPart>(stored, lanes.part(i));
      }
    }
  } else {
    std::array<Stored, N> whole{};
    std::copy_n(p, count, whole.begin());
    load_lanes(whole.data(), AllLanes<N>{}, lanes);
  }
}
/// Stores the first `count` lanes in memory with f32 or bf16.
template <int N, class Stored, class Count>
[[gnu::always_inline]] inline void store_lanes(Stored* p, Count count, const Lanes<float, N>& lanes) {
  constexpr int kPart = Lanes<float, N>::kPart;
  if constexpr (std::is_same_v<Count, AllLanes<N>>) {
    for (int i = 0; i < Lanes<float, N>::kParts; ++i) {
      if constexpr (std::is_same_v<Stored, float>) {
        std::memcpy(p + i * kPart, &lanes.part(i), kPart * sizeof *p);
      } else {
        typename Vector<std::uint16_t, kPart>::Type stored;
        narrow<kPart>(lanes.part(i), stored);
        std::memcpy(static_cast<void*>(p + i * kPart), &stored, kPart * sizeof *p);
      }
    }
  } else {
    std::array<Stored, N> whole;
    store_lanes(whole.data(), AllLanes<N>{}, lanes);
    std::copy_n(whole.begin(), count, p);
  }
}

/// Converts floats to doubles.
template <int N>
[[gnu::always_inline]] inline Lanes<double, N> to_doubles(const Lanes<float, N>& floats) {
  using Doubles = Lanes<double, N>;
  constexpr int kPart = Doubles::kPart;
  std::array<float, N> stored;
  store_lanes(stored.data(), AllLanes<N>{}, floats);
  Doubles doubles;
  for (int i = 0; i < Doubles::kParts; ++i) {
    typename Vector<float, kPart>::Type some;
    load(stored.data() + i * kPart, some);
    doubles.part(i) = __builtin_convertvector(some, typename Doubles::Part);
  }
  return doubles;
}

}  // namespace convnet::cpu
