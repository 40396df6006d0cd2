// Vectors in registers, and matrices of 16 rows turned into matrices of 16 columns and back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

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

constexpr int kRows = 16;
/// A square of 16 rows.
template <class T>
using Square = std::array<typename Vector<T, kRows>::Type, kRows>;

/// Exchanges the off-diagonal quarters of the squares of 2*Step rows and columns that hold row I, if it is
/// one of their first rows.
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
/// Calls f(Constant<0>) ... f(Constant<15>): in loops over its rows a square would not stay in registers.
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
