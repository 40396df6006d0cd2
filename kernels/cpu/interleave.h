// Vectors in registers, and transposition of matrices with 16 rows to matrices with 16 columns and back.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/bf16.h"

namespace convnet::cpu {

template <class T, int Lanes>
struct Vector {
  typedef T Type __attribute__((vector_size(Lanes * sizeof(T))));
};
template <class V, class T>
void load(const T* p, V& v) {
  std::memcpy(&v, p, sizeof v);
}
template <class V, class T>
void store(T* p, const V& v) {
  std::memcpy(p, &v, sizeof v);
}

/// Converts bf16 numbers to floats; narrow() rounds floats to bf16 as to_bf16() does.
template <int Lanes>
void widen(const typename Vector<std::uint16_t, Lanes>::Type& stored,
           typename Vector<float, Lanes>::Type& v) {
  using Bits = typename Vector<std::uint32_t, Lanes>::Type;
  v = (typename Vector<float, Lanes>::Type)(__builtin_convertvector(stored, Bits) << 16);
}
template <int Lanes>
void narrow(const typename Vector<float, Lanes>::Type& v,
            typename Vector<std::uint16_t, Lanes>::Type& stored) {
  using Bits = typename Vector<std::uint32_t, Lanes>::Type;
  const Bits bits = (Bits)v;
  const Bits rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
  // NOLINTNEXTLINE(misc-redundant-expression): what differs from itself is NaN
  stored = __builtin_convertvector((v != v) ? (bits >> 16 | 0x40U) : rounded,
                                   typename Vector<std::uint16_t, Lanes>::Type);
}

#if defined(__AVX512BW__)
// Compilers make several instructions of the conversions above. (The masks, which select all lanes, avoid
// GCC's warnings about undefined values.)
template <>
[[gnu::always_inline]] inline void widen<16>(const Vector<std::uint16_t, 16>::Type& stored,
                                             Vector<float, 16>::Type& v) {
  constexpr __mmask16 all = 0xffff;
  v = (Vector<float, 16>::Type)_mm512_maskz_slli_epi32(all, _mm512_maskz_cvtepu16_epi32(all, (__m256i)stored),
                                                       16);
}
/// The processor's own conversion (vcvtneps2bf16) would take subnormal numbers for zeros.
template <>
[[gnu::always_inline]] inline void narrow<16>(const Vector<float, 16>::Type& v,
                                              Vector<std::uint16_t, 16>::Type& stored) {
  constexpr __mmask16 all = 0xffff;
  const __m512i bits = (__m512i)v;
  const __mmask16 odd = _mm512_mask_test_epi32_mask(all, bits, _mm512_set1_epi32(0x10000));
  const __mmask16 nan = _mm512_mask_cmp_ps_mask(all, (__m512)v, (__m512)v, _CMP_UNORD_Q);
  __m512i rounded = _mm512_maskz_add_epi32(all, bits, _mm512_set1_epi32(0x7fff));
  rounded = _mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1));
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  stored = (Vector<std::uint16_t, 16>::Type)_mm512_maskz_cvtepi32_epi16(
      all, _mm512_maskz_srli_epi32(all, rounded, 16));
}
#endif
#if defined(__AVX2__)
template <>
[[gnu::always_inline]] inline void widen<8>(const Vector<std::uint16_t, 8>::Type& stored,
                                            Vector<float, 8>::Type& v) {
  v = (Vector<float, 8>::Type)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)stored), 16);
}
template <>
[[gnu::always_inline]] inline void narrow<8>(const Vector<float, 8>::Type& v,
                                             Vector<std::uint16_t, 8>::Type& stored) {
  const auto bits = (__m256i)v;
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = (__m256i)_mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q);
  const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, nan, is_nan), 16);
  stored = (Vector<std::uint16_t, 8>::Type)_mm_packus_epi32(_mm256_castsi256_si128(upper),
                                                            _mm256_extracti128_si256(upper, 1));
}
#endif
#if !defined(__AVX512BW__)
/// The general function is ten times slower where a vector is longer than a register.
template <>
[[gnu::always_inline]] inline void narrow<16>(const Vector<float, 16>::Type& v,
                                              Vector<std::uint16_t, 16>::Type& stored) {
  std::array<Vector<float, 8>::Type, 2> halves;
  std::array<Vector<std::uint16_t, 8>::Type, 2> narrowed;
  std::memcpy(halves.data(), &v, sizeof v);
  narrow<8>(halves[0], narrowed[0]);
  narrow<8>(halves[1], narrowed[1]);
  std::memcpy(&stored, narrowed.data(), sizeof stored);
}
#endif

/// Load and store the first `count` lanes of a vector of floats, which memory holds as f32 or bf16. The other
/// lanes are loaded as zeros.
template <int Lanes>
void load_floats(const float* p, std::size_t count, typename Vector<float, Lanes>::Type& v) {
  v = typename Vector<float, Lanes>::Type{};
  std::memcpy(&v, p, count * sizeof *p);
}
template <int Lanes>
void load_floats(const BFloat16* p, std::size_t count, typename Vector<float, Lanes>::Type& v) {
  typename Vector<std::uint16_t, Lanes>::Type stored{};
  std::memcpy(&stored, p, count * sizeof *p);
  widen<Lanes>(stored, v);
}
template <int Lanes>
void store_floats(float* p, std::size_t count, const typename Vector<float, Lanes>::Type& v) {
  std::memcpy(p, &v, count * sizeof *p);
}
template <int Lanes>
void store_floats(BFloat16* p, std::size_t count, const typename Vector<float, Lanes>::Type& v) {
  typename Vector<std::uint16_t, Lanes>::Type stored;
  narrow<Lanes>(v, stored);
  std::memcpy(static_cast<void*>(p), &stored, count * sizeof *p);
}

constexpr int kRows = 16;
/// A matrix of 16 x 16 elements, by rows.
template <class T>
using Square = std::array<typename Vector<T, kRows>::Type, kRows>;

/// One step of the transposition, for the rows I and I + Step: exchanges the off-diagonal quarters of all
/// blocks of 2*Step x 2*Step elements in them. Does nothing if row I is in the lower half of its block.
template <int Step, int I, class T>
[[gnu::always_inline]] inline void exchange(Square<T>& rows) {
  if constexpr ((I & Step) == 0) {
    const auto a = rows[I], b = rows[I + Step];
    [&]<int... L>(std::integer_sequence<int, L...>) __attribute__((always_inline)) {
      rows[I] = __builtin_shufflevector(a, b, ((L & Step) == 0 ? L : kRows + L - Step)...);
      rows[I + Step] = __builtin_shufflevector(a, b, ((L & Step) == 0 ? L + Step : kRows + L)...);
    }
    (std::make_integer_sequence<int, kRows>{});
  }
}
/// Calls f(Constant<0>) ... f(Constant<15>). It replaces loops, in which a Square would not stay in
/// registers.
template <class F>
[[gnu::always_inline]] inline void for_rows(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, kRows>{});
}

template <class T>
[[gnu::always_inline]] inline void transpose(Square<T>& rows) {
  for_rows([&](auto i) { exchange<1, i(), T>(rows); });
  for_rows([&](auto i) { exchange<2, i(), T>(rows); });
  for_rows([&](auto i) { exchange<4, i(), T>(rows); });
  for_rows([&](auto i) { exchange<8, i(), T>(rows); });
}

/// Converts pointers to a type of the same size that compilers make vectors of, for numbers that are only
/// moved.
inline float* bits_of(float* p) { return p; }
inline const float* bits_of(const float* p) { return p; }
inline std::uint16_t* bits_of(BFloat16* p) { return reinterpret_cast<std::uint16_t*>(p); }
inline const std::uint16_t* bits_of(const BFloat16* p) { return reinterpret_cast<const std::uint16_t*>(p); }

/// columns[i][row] = rows[row][i] for i < length, zeros for rows >= count.
template <class T>
void interleave(const T* rows, std::int64_t row_stride, std::int64_t count, std::int64_t length, T* columns,
                std::int64_t column_stride = kRows) {
  std::int64_t i = 0;
  for (; i + kRows <= length; i += kRows) {
    Square<T> square{};
    for_rows([&](auto row) {
      if (row < count) load(rows + row * row_stride + i, square[row]);
    });
    transpose<T>(square);
    for_rows([&](auto column) { store(columns + (i + column) * column_stride, square[column]); });
  }
  for (; i < length; ++i)
    for (std::int64_t row = 0; row < kRows; ++row)
      columns[i * column_stride + row] = row < count ? rows[row * row_stride + i] : T{};
}
/// The opposite: rows[row][i] = columns[i][row].
template <class T>
void separate(const T* columns, std::int64_t count, std::int64_t length, T* rows) {
  std::int64_t i = 0;
  for (; i + kRows <= length; i += kRows) {
    Square<T> square;
    for_rows([&](auto column) { load(columns + (i + column) * kRows, square[column]); });
    transpose<T>(square);
    for_rows([&](auto row) {
      if (row < count) store(rows + row * length + i, square[row]);
    });
  }
  for (; i < length; ++i)
    for (std::int64_t row = 0; row < count; ++row) rows[row * length + i] = columns[i * kRows + row];
}

}  // namespace convnet::cpu
