// Winograd's method in one dimension, and its application to two-dimensional tiles: Lavin and Gray, "Fast
// Algorithms for Convolutional Neural Networks" (2015), section 4. F(m,r) computes m outputs of a filter with
// r taps from n = m+r-1 inputs with n products. In two dimensions, with ' for transposes and * for
// elementwise products, the outputs Y of the filter g for the inputs d, and the gradient of g, which enters
// linearly, are
//   Y  = A' [(G g G') * (B' d B)] A
//   dg = G' [(B' d B) * (A dY A')] G.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "kernels/cpu/lanes.h"

namespace convnet::cpu::winograd {

/// Channels that are transformed together: the floats in a register.
constexpr int kLanes = kUsualBlock;
using Vec = Vector<float, kLanes>::Type;
template <int N>
using Line = std::array<Vec, N>;

/// Calls f(Constant<0>) ... f(Constant<N-1>). It replaces loops, in which arrays of vectors would not stay in
/// registers.
template <int N, class F>
[[gnu::always_inline]] inline void unrolled(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

/// The sizes of a method: it computes `outputs` outputs of a filter with `taps` taps and stride `stride` from
/// `inputs` inputs. Tiles are `step` inputs apart.
template <int Outputs, int Taps, int Stride = 1>
struct Sizes {
  static constexpr int outputs = Outputs, taps = Taps, stride = Stride;
  static constexpr int inputs = (Outputs - 1) * Stride + Taps, step = Outputs * Stride;
};

/// F(2,3): polynomials at 0, 1, -1 and infinity.
struct F2x3 : Sizes<2, 3> {
  static constexpr int points = 4;  ///< number of products
  using Backward = F2x3;            ///< the method for gradients of inputs, with the rotated filter

  /// B' d.
  [[gnu::always_inline]] static inline void input(const Line<4>& d, Line<4>& v) {
    v = {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]};
  }
  /// A' m.
  [[gnu::always_inline]] static inline void output(const Line<4>& m, Line<2>& y) {
    y = {m[0] + m[1] + m[2], m[1] - m[2] - m[3]};
  }
  /// A y.
  [[gnu::always_inline]] static inline void gradient(const Line<2>& y, Line<4>& v) {
    v = {y[0], y[0] + y[1], y[0] - y[1], -y[1]};
  }
  /// G g.
  [[gnu::always_inline]] static inline void filter(const Line<3>& g, Line<4>& u) {
    const Vec ends = g[0] + g[2];
    u = {g[0], 0.5F * (ends + g[1]), 0.5F * (ends - g[1]), g[2]};
  }
  /// G' u.
  [[gnu::always_inline]] static inline void filter_gradient(const Line<4>& u, Line<3>& g) {
    const Vec sum = 0.5F * (u[1] + u[2]);
    g = {u[0] + sum, 0.5F * (u[1] - u[2]), sum + u[3]};
  }
};

/// F(2,2): polynomials at 0, 1 and infinity.
struct F2x2 {
  [[gnu::always_inline]] static inline Line<3> input(Vec d0, Vec d1, Vec d2) {
    return {d0 - d1, d1, d1 - d2};
  }
  [[gnu::always_inline]] static inline Line<2> output(Vec m0, Vec m1, Vec m2) { return {m0 + m1, m1 - m2}; }
  [[gnu::always_inline]] static inline Line<3> gradient(Vec y0, Vec y1) { return {y0, y0 + y1, -y1}; }
  [[gnu::always_inline]] static inline Line<3> filter(Vec g0, Vec g1) { return {g0, g0 + g1, g1}; }
  [[gnu::always_inline]] static inline Line<2> filter_gradient(Vec u0, Vec u1, Vec u2) {
    return {u0 + u1, u1 + u2};
  }
};

/// Two outputs of a filter with five taps, as F(2,3) of the first three and F(2,2) of the others. It needs
/// more products than F(2,5), but it is precise enough for bf16 factors, which have 8 bits.
struct F2x3And2 : Sizes<2, 5> {
  static constexpr int points = 7;
  using Backward = F2x3And2;

  [[gnu::always_inline]] static inline void input(const Line<6>& d, Line<7>& v) {
    Line<4> first;
    F2x3::input({d[0], d[1], d[2], d[3]}, first);
    const Line<3> rest = F2x2::input(d[3], d[4], d[5]);
    v = {first[0], first[1], first[2], first[3], rest[0], rest[1], rest[2]};
  }
  [[gnu::always_inline]] static inline void output(const Line<7>& m, Line<2>& y) {
    F2x3::output({m[0], m[1], m[2], m[3]}, y);
    const Line<2> rest = F2x2::output(m[4], m[5], m[6]);
    y = {y[0] + rest[0], y[1] + rest[1]};
  }
  [[gnu::always_inline]] static inline void gradient(const Line<2>& y, Line<7>& v) {
    Line<4> first;
    F2x3::gradient(y, first);
    const Line<3> rest = F2x2::gradient(y[0], y[1]);
    v = {first[0], first[1], first[2], first[3], rest[0], rest[1], rest[2]};
  }
  [[gnu::always_inline]] static inline void filter(const Line<5>& g, Line<7>& u) {
    Line<4> first;
    F2x3::filter({g[0], g[1], g[2]}, first);
    const Line<3> rest = F2x2::filter(g[3], g[4]);
    u = {first[0], first[1], first[2], first[3], rest[0], rest[1], rest[2]};
  }
  [[gnu::always_inline]] static inline void filter_gradient(const Line<7>& u, Line<5>& g) {
    Line<3> first;
    F2x3::filter_gradient({u[0], u[1], u[2], u[3]}, first);
    const Line<2> rest = F2x2::filter_gradient(u[4], u[5], u[6]);
    g = {first[0], first[1], first[2], rest[0], rest[1]};
  }
};

/// Gradients of the inputs of Strided2x3 with one input of padding: four gradients of inputs from three
/// gradients of outputs. Of the four, those with even numbers depend on the middle tap, the others on the
/// outer taps, by F(2,2).
struct Strided2x3Backward {
  static constexpr int outputs = 4, taps = 3, inputs = 3, step = 2, points = 5;

  [[gnu::always_inline]] static inline void input(const Line<3>& d, Line<5>& v) {
    const Line<3> outer = F2x2::input(d[0], d[1], d[2]);
    v = {outer[0], outer[1], outer[2], d[0], d[1]};
  }
  [[gnu::always_inline]] static inline void output(const Line<5>& m, Line<4>& y) {
    const Line<2> outer = F2x2::output(m[0], m[1], m[2]);
    y = {m[3], outer[0], m[4], outer[1]};
  }
  [[gnu::always_inline]] static inline void filter(const Line<3>& g, Line<5>& u) {
    const Line<3> outer = F2x2::filter(g[0], g[2]);
    u = {outer[0], outer[1], outer[2], g[1], g[1]};
  }
};

/// Two outputs of a filter with three taps and stride 2. The outer taps apply to inputs with even numbers, by
/// F(2,2); the middle tap applies to the others.
struct Strided2x3 : Sizes<2, 3, 2> {
  static constexpr int points = 5;
  using Backward = Strided2x3Backward;

  [[gnu::always_inline]] static inline void input(const Line<5>& d, Line<5>& v) {
    const Line<3> outer = F2x2::input(d[0], d[2], d[4]);
    v = {outer[0], outer[1], outer[2], d[1], d[3]};
  }
  [[gnu::always_inline]] static inline void output(const Line<5>& m, Line<2>& y) {
    const Line<2> outer = F2x2::output(m[0], m[1], m[2]);
    y = {outer[0] + m[3], outer[1] + m[4]};
  }
  [[gnu::always_inline]] static inline void gradient(const Line<2>& y, Line<5>& v) {
    const Line<3> outer = F2x2::gradient(y[0], y[1]);
    v = {outer[0], outer[1], outer[2], y[0], y[1]};
  }
  [[gnu::always_inline]] static inline void filter(const Line<3>& g, Line<5>& u) {
    Strided2x3Backward::filter(g, u);
  }
  [[gnu::always_inline]] static inline void filter_gradient(const Line<5>& u, Line<3>& g) {
    const Line<2> outer = F2x2::filter_gradient(u[0], u[1], u[2]);
    g = {outer[0], u[3] + u[4], outer[1]};
  }
};

/// F(4,3) and F(2,5): polynomials at 0, 1, -1, 2, -2 and infinity.
template <int Outputs>
struct SixPoints : Sizes<Outputs, 7 - Outputs> {
  static constexpr int points = 6, taps = 7 - Outputs;
  using Backward = SixPoints;

  [[gnu::always_inline]] static inline void input(const Line<6>& d, Line<6>& v) {
    const Vec even = d[4] - 4 * d[2], odd = d[3] - 4 * d[1];
    const Vec even2 = d[4] - d[2], odd2 = 2 * (d[3] - d[1]);
    v = {4 * d[0] - 5 * d[2] + d[4], even + odd, even - odd, even2 + odd2, even2 - odd2,
         4 * d[1] - 5 * d[3] + d[5]};
  }
  [[gnu::always_inline]] static inline void output(const Line<6>& m, Line<Outputs>& y) {
    powers<Outputs>(m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4], y);
    y[0] += m[0];
    y[Outputs - 1] += m[5];
  }
  [[gnu::always_inline]] static inline void gradient(const Line<Outputs>& y, Line<6>& v) {
    const auto [even, odd, even2, odd2] = values<Outputs>(y);
    v = {y[0], even + odd, even - odd, even2 + odd2, even2 - odd2, y[Outputs - 1]};
  }
  [[gnu::always_inline]] static inline void filter(const Line<taps>& g, Line<6>& u) {
    const auto [even, odd, even2, odd2] = values<taps>(g);
    u = {0.25F * g[0],
         -kSixth * (even + odd),
         -kSixth * (even - odd),
         kSixth / 4 * (even2 + odd2),
         kSixth / 4 * (even2 - odd2),
         g[taps - 1]};
  }
  [[gnu::always_inline]] static inline void filter_gradient(const Line<6>& u, Line<taps>& g) {
    powers<taps>(-kSixth * (u[1] + u[2]), -kSixth * (u[1] - u[2]), kSixth / 4 * (u[3] + u[4]),
                 kSixth / 4 * (u[3] - u[4]), g);
    g[0] += 0.25F * u[0];
    g[taps - 1] += u[5];
  }

 private:
  static constexpr float kSixth = 1.0F / 6;

  /// Returns the even and the odd part, at 1 and at 2, of the polynomial with coefficients `c`.
  template <int N>
  [[gnu::always_inline]] static inline Line<4> values(const Line<N>& c) {
    Line<4> parts{};
    unrolled<N>([&](auto j) __attribute__((always_inline)) {
      parts[j % 2] += c[j];
      parts[2 + j % 2] += static_cast<float>(1 << j) * c[j];
    });
    return parts;
  }
  /// y[j] = even + 2^j even2 for even j, odd + 2^j odd2 for odd ones.
  template <int N>
  [[gnu::always_inline]] static inline void powers(Vec even, Vec odd, Vec even2, Vec odd2, Line<N>& y) {
    unrolled<N>([&](auto j) __attribute__((always_inline)) {
      y[j] = j % 2 == 0 ? even + static_cast<float>(1 << j) * even2 : odd + static_cast<float>(1 << j) * odd2;
    });
  }
};
using F4x3 = SixPoints<4>;
using F2x5 = SixPoints<2>;

/// Computes M x M'. get(i, j) returns element (i,j) of x, which is In x In; put(i, j, value) takes the
/// elements of the result, which is Out x Out. `line` multiplies a column by M.
template <int In, int Out, class Get, class Transform, class Put>
[[gnu::always_inline]] inline void transform(const Get& get, const Transform& line, const Put& put) {
  std::array<Line<In>, Out> rows;
  unrolled<In>([&](auto j) __attribute__((always_inline)) {
    Line<In> column;
    unrolled<In>([&](auto i) __attribute__((always_inline)) { column[i] = get(i, j); });
    Line<Out> transformed;
    line(column, transformed);
    unrolled<Out>([&](auto i) __attribute__((always_inline)) { rows[i][j] = transformed[i]; });
  });
  unrolled<Out>([&](auto i) __attribute__((always_inline)) {
    Line<Out> transformed;
    line(rows[i], transformed);
    unrolled<Out>([&](auto j) __attribute__((always_inline)) { put(i, j, transformed[j]); });
  });
}

}  // namespace convnet::cpu::winograd
