// 3x3 convolutions of bf16 numbers by Winograd's method F(2x2,3x3): Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks" (2015), section 4.1. A tile of 2x2 outputs takes 16 products instead of 36:
//   Y = A' [(G g G') * (B' d B)] A,
// where d is the 4x4 inputs that the tile sees, g a filter, * the product of elements, and ' transposes. Over
// all channels and tiles, each of the 16 elements is a product of matrices. As the formula is linear in g,
// the gradient of the filters is G' [sum over tiles (B' d B) * (A dY A')] G. Transforms are made in f32 and
// rounded to bf16 for the products, which are summed in f32.
#include "kernels/cpu/own_kernels.h"

#if defined(__AVX512BF16__)

#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/cpu/interleave.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

constexpr int kPoints = 16;            ///< elements of a transformed tile
constexpr std::int64_t kLanes = 16;    ///< channels in a vector of f32, and in a block of the layout
constexpr std::int64_t kPanel = 64;    ///< most columns of a product that are computed together
constexpr std::int64_t kRowStep = 24;  ///< a multiple of the rows that any multiply() of tiles takes
using Number = std::uint16_t;          ///< bits of a bf16 number

using Vec = Vector<float, kLanes>::Type;
using Tile = std::array<Vec, kPoints>;  ///< element (i,j) of a 4x4 tile at 4i+j, each for 16 channels

/// Calls f(Constant<0>) ... f(Constant<N-1>): accumulators in arrays stay in registers only without loops.
template <int N, class F>
[[gnu::always_inline]] inline void unrolled(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

using Words = Vector<std::uint16_t, kLanes>::Type;
using Pair = Vector<std::uint16_t, 2 * kLanes>::Type;

[[gnu::always_inline]] inline Vec load_bf16(const Number* p) {
  Words stored;
  load(p, stored);
  Vec v;
  widen<kLanes>(stored, v);
  return v;
}
[[gnu::always_inline]] inline void store_bf16(Number* p, Vec v) { store(p, (Words)_mm512_cvtneps_pbh(v)); }
/// Stores a[0] b[0] a[1] b[1] ...: pairs whose products are summed.
[[gnu::always_inline]] inline void store_pairs(Number* p, Vec a, Vec b) {
  constexpr std::array<Number, 32> order = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                            8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  Pair indices;
  load(order.data(), indices);
  store(p, (Pair)_mm512_maskz_permutexvar_epi16(~__mmask32{0}, (__m512i)indices,
                                                (__m512i)_mm512_cvtne2ps_pbh(b, a)));
}

/// One side of the convolution: (N,C,H,W) stored as nChw16c.
struct Side {
  std::int64_t c, h, w;
  std::int64_t image() const { return c * h * w; }
  std::int64_t block() const { return kLanes * h * w; }  ///< numbers of 16 channels of an image
};

/// A convolution, forward or backward, as the tiles of its outputs see it.
struct Tiling {
  std::int64_t n;
  Side in, out;
  std::int64_t pad;  ///< zeros before the first row and column of the input

  std::int64_t rows() const { return (out.h + 1) / 2; }
  std::int64_t columns() const { return (out.w + 1) / 2; }
  std::int64_t tiles() const { return n * rows() * columns(); }
};
Tiling forward_tiling(const ConvGeometry& g) { return {g.n, {g.c, g.h, g.w}, {g.k, g.oh, g.ow}, g.pad}; }
/// Gradients of the input are a convolution of the output's with the filters turned around.
Tiling backward_tiling(const ConvGeometry& g) { return {g.n, {g.k, g.oh, g.ow}, {g.c, g.h, g.w}, 2 - g.pad}; }

struct Place {
  std::int64_t image, y, x;  ///< of the tile's first output
};
Place place_of(const Tiling& t, std::int64_t tile) {
  const std::int64_t columns = t.columns(), row = tile / columns;
  return {row / t.rows(), row % t.rows() * 2, tile % columns * 2};
}

/// Where `Size` x `Size` pixels from (y,x) on lie in a block of 16 channels; -1 outside of the image.
template <int Size>
std::array<std::int64_t, std::size_t{Size} * Size> pixels_at(const Side& side, std::int64_t y,
                                                             std::int64_t x) {
  std::array<std::int64_t, std::size_t{Size} * Size> at;
  for (int i = 0; i < Size; ++i)
    for (int j = 0; j < Size; ++j) {
      const bool inside = y + i >= 0 && y + i < side.h && x + j >= 0 && x + j < side.w;
      at[static_cast<std::size_t>(i * Size + j)] = inside ? ((y + i) * side.w + x + j) * kLanes : -1;
    }
  return at;
}
alignas(64) constexpr std::array<Number, kLanes> kZeros{};
[[gnu::always_inline]] inline Vec pixel(const Number* block, std::int64_t at) {
  const Number* const p = at < 0 ? kZeros.data() : block + at;
  _mm_prefetch(p + 4 * kLanes, _MM_HINT_T0);
  return load_bf16(p);
}

/// B' d B.
[[gnu::always_inline]] inline void transform_input(const Number* block,
                                                   const std::array<std::int64_t, kPoints>& at, Tile& v) {
  Tile t;
  unrolled<4>([&](auto j) __attribute__((always_inline)) {
    const Vec d0 = pixel(block, at[j]), d1 = pixel(block, at[4 + j]);
    const Vec d2 = pixel(block, at[8 + j]), d3 = pixel(block, at[12 + j]);
    t[j] = d0 - d2;
    t[4 + j] = d1 + d2;
    t[8 + j] = d2 - d1;
    t[12 + j] = d1 - d3;
  });
  unrolled<4>([&](auto i) __attribute__((always_inline)) {
    v[4 * i] = t[4 * i] - t[4 * i + 2];
    v[4 * i + 1] = t[4 * i + 1] + t[4 * i + 2];
    v[4 * i + 2] = t[4 * i + 2] - t[4 * i + 1];
    v[4 * i + 3] = t[4 * i + 1] - t[4 * i + 3];
  });
}

/// A dY A'; adds the four gradients to `sum`.
[[gnu::always_inline]] inline void transform_gradient(const Number* block,
                                                      const std::array<std::int64_t, 4>& at, Tile& v,
                                                      Vec& sum) {
  const Vec y00 = pixel(block, at[0]), y01 = pixel(block, at[1]);
  const Vec y10 = pixel(block, at[2]), y11 = pixel(block, at[3]);
  sum += (y00 + y01) + (y10 + y11);
  const std::array<Vec, 4> left = {y00, y00 + y10, y00 - y10, -y10};
  const std::array<Vec, 4> right = {y01, y01 + y11, y01 - y11, -y11};
  unrolled<4>([&](auto i) __attribute__((always_inline)) {
    v[4 * i] = left[i];
    v[4 * i + 1] = left[i] + right[i];
    v[4 * i + 2] = left[i] - right[i];
    v[4 * i + 3] = -right[i];
  });
}

/// G g G', where `g` has the nine elements of a filter.
[[gnu::always_inline]] inline void transform_filter(const std::array<Vec, 9>& g, Tile& u) {
  const Vec half = _mm512_set1_ps(0.5F);
  std::array<Vec, 12> t;
  unrolled<3>([&](auto j) __attribute__((always_inline)) {
    const Vec ends = g[j] + g[6 + j];
    t[j] = g[j];
    t[3 + j] = half * (ends + g[3 + j]);
    t[6 + j] = half * (ends - g[3 + j]);
    t[9 + j] = g[6 + j];
  });
  unrolled<4>([&](auto i) __attribute__((always_inline)) {
    const Vec ends = t[3 * i] + t[3 * i + 2];
    u[4 * i] = t[3 * i];
    u[4 * i + 1] = half * (ends + t[3 * i + 1]);
    u[4 * i + 2] = half * (ends - t[3 * i + 1]);
    u[4 * i + 3] = t[3 * i + 2];
  });
}

/// G' u G.
[[gnu::always_inline]] inline void transform_filter_gradient(const Tile& u, std::array<Vec, 9>& g) {
  const Vec half = _mm512_set1_ps(0.5F);
  std::array<Vec, 12> t;
  unrolled<4>([&](auto j) __attribute__((always_inline)) {
    const Vec sum = half * (u[4 + j] + u[8 + j]);
    t[j] = u[j] + sum;
    t[4 + j] = half * (u[4 + j] - u[8 + j]);
    t[8 + j] = sum + u[12 + j];
  });
  unrolled<3>([&](auto i) __attribute__((always_inline)) {
    const Vec sum = half * (t[4 * i + 1] + t[4 * i + 2]);
    g[3 * i] = t[4 * i] + sum;
    g[3 * i + 1] = half * (t[4 * i + 1] - t[4 * i + 2]);
    g[3 * i + 2] = sum + t[4 * i + 3];
  });
}

/// A matrix of pairs of bf16 numbers: the pair (row, pair) is at row * row_step + pair * pair_step, in pairs.
struct Pairs {
  const Number* data;
  std::int64_t row_step, pair_step;
  const Number* at(std::int64_t row) const { return data + 2 * row * row_step; }
};

/// out(row, column) = [out +] sum over pairs of a(row, pair) b(pair, column), for Rows rows and 16 * Vecs
/// columns. `b` has the pairs of all columns one after the other, `b_step` pairs from one to the next.
template <int Rows, int Vecs>
void multiply(const Pairs& a, const Number* b, std::int64_t b_step, std::int64_t pairs, bool add, float* out,
              std::int64_t out_step) {
  std::array<std::array<Vec, Vecs>, Rows> sums;
  unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<Vecs>([&](auto z) __attribute__((always_inline)) {
      sums[r][z] = add ? _mm512_loadu_ps(out + r * out_step + z * kLanes) : _mm512_setzero_ps();
    });
  });
  const Number* from = a.data;
  for (std::int64_t p = 0; p < pairs; ++p, from += 2 * a.pair_step, b += 2 * b_step) {
    std::array<Pair, Vecs> columns;
    unrolled<Vecs>([&](auto z) __attribute__((always_inline)) { load(b + 2 * z * kLanes, columns[z]); });
    unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
      std::int32_t pair;
      std::memcpy(&pair, from + 2 * r * a.row_step, sizeof pair);
      const auto broadcast = (__m512bh)_mm512_set1_epi32(pair);
      unrolled<Vecs>([&](auto z) __attribute__((always_inline)) {
        sums[r][z] = _mm512_dpbf16_ps(sums[r][z], broadcast, (__m512bh)columns[z]);
      });
    });
  }
  unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<Vecs>([&](auto z) __attribute__((always_inline)) {
      _mm512_storeu_ps(out + r * out_step + z * kLanes, sums[r][z]);
    });
  });
}

/// The same for `rows` rows, a multiple of Rows.
template <int Rows, int Vecs>
void multiply_rows(std::int64_t rows, const Pairs& a, const Number* b, std::int64_t b_step,
                   std::int64_t pairs, bool add, float* out, std::int64_t out_step) {
  for (std::int64_t r = 0; r < rows; r += Rows)
    multiply<Rows, Vecs>({a.at(r), a.row_step, a.pair_step}, b, b_step, pairs, add, out + r * out_step,
                         out_step);
}

/// Numbers of the columns that panel `first` .. has.
std::int64_t panel_width(std::int64_t columns, std::int64_t first) {
  return std::min(kPanel, columns - first);
}

/// Numbers from one element of transformed tiles to the next. Steps of a power of two would put all sixteen
/// elements of a tile into one set of the cache.
template <class T>
std::int64_t point_step(std::int64_t numbers) {
  return numbers + 64 / static_cast<std::int64_t>(sizeof(T));
}

/// Bytes of `count` numbers, rounded up to where the next piece of memory may begin.
template <class T>
std::int64_t bytes_of(std::int64_t count) {
  return aligned(count * static_cast<std::int64_t>(sizeof(T)));
}

/// Forward convolutions and gradients of inputs: outputs from transformed inputs and filters.
class Outputs : public PreparedOp {
 public:
  /// `backward`: the filters are those of the forward convolution, (I,O,3,3) as seen from here.
  Outputs(const Tiling& tiling, bool backward, std::vector<TensorDesc> args, bool accumulate, bool relu,
          bool bias)
      : t_(tiling),
        backward_(backward),
        accumulate_(accumulate),
        relu_(relu),
        bias_(bias),
        threads_(omp_get_max_threads()),
        tiles_(t_.tiles() >= 2 * threads_ * kMostTiles ? kMostTiles : kRowStep) {
    args_ = std::move(args);
    algorithm_ = "winograd:own";
    workspace_bytes_ = shared_bytes() + threads_ * thread_bytes();
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const override {
    const auto* const in = reinterpret_cast<const Number*>(pointers[0]);
    const auto* const filters = reinterpret_cast<const float*>(pointers[1]);
    const auto* const bias = bias_ ? reinterpret_cast<const float*>(pointers[2]) : nullptr;
    auto* const out = reinterpret_cast<Number*>(pointers.back());
    auto* const transformed = reinterpret_cast<Number*>(workspace);  // [point][panel][input pair][column][2]
    const std::int64_t tiles = t_.tiles(), blocks = (tiles + tiles_ - 1) / tiles_;
#pragma omp parallel num_threads(threads_)
    {
      const Memory memory = memory_of(workspace, omp_get_thread_num());
#pragma omp for schedule(static)
      for (std::int64_t o = 0; o < t_.out.c; o += kLanes) transform_filters(filters, o, transformed);
#pragma omp for schedule(dynamic)
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t first = block * tiles_, count = std::min(tiles_, tiles - first);
        transform_inputs(in, first, count, memory.inputs);
        for (std::int64_t column = 0; column < t_.out.c; column += kPanel) {
          multiply_panel(memory, transformed, column, count);
          transform_outputs(memory.products, column, first, count, bias, out);
        }
      }
    }
  }

 private:
  static constexpr std::int64_t kMostTiles = 96;

  /// Of a thread.
  struct Memory {
    Number* inputs;   ///< [point][tile][input]
    float* products;  ///< [point][tile][column of a panel]
  };
  std::int64_t input_step() const { return point_step<Number>(tiles_ * t_.in.c); }
  std::int64_t product_step() const { return point_step<float>(tiles_ * kPanel); }
  std::int64_t shared_bytes() const { return bytes_of<Number>(kPoints * t_.in.c * t_.out.c); }
  std::int64_t input_bytes() const { return bytes_of<Number>(kPoints * input_step()); }
  std::int64_t thread_bytes() const { return input_bytes() + bytes_of<float>(kPoints * product_step()); }
  Memory memory_of(std::byte* workspace, int thread) const {
    std::byte* const begin = workspace + shared_bytes() + thread * thread_bytes();
    return {as<Number>(begin), as<float>(begin + input_bytes())};
  }

  /// Transforms the filters of 16 outputs.
  void transform_filters(const float* filters, std::int64_t output, Number* to) const {
    const std::int64_t inputs = t_.in.c, outputs = t_.out.c, panel = output / kPanel * kPanel;
    const std::int64_t output_step = backward_ ? 9 : inputs * 9, input_step = backward_ ? outputs * 9 : 9;
    const std::int64_t width = panel_width(outputs, panel);
    for (std::int64_t input = 0; input < inputs; input += 2) {
      std::array<Tile, 2> u;
      for (std::int64_t of_pair = 0; of_pair < 2; ++of_pair) {
        alignas(64) std::array<std::array<float, kLanes>, 9> elements;
        const float* const from = filters + output * output_step + (input + of_pair) * input_step;
        for (std::size_t lane = 0; lane < kLanes; ++lane)
          for (std::size_t f = 0; f < 9; ++f)
            elements[backward_ ? 8 - f : f][lane] =
                from[static_cast<std::int64_t>(lane) * output_step + static_cast<std::int64_t>(f)];
        std::array<Vec, 9> g;
        for (std::size_t f = 0; f < 9; ++f) g[f] = _mm512_load_ps(elements[f].data());
        transform_filter(g, u[static_cast<std::size_t>(of_pair)]);
      }
      Number* const pair = to + panel * inputs + input * width + 2 * (output - panel);
      for (std::size_t i = 0; i < kPoints; ++i)
        store_pairs(pair + static_cast<std::int64_t>(i) * inputs * outputs, u[0][i], u[1][i]);
    }
  }

  /// Transforms the inputs of `count` tiles; rows up to the next multiple of kRowStep become zeros.
  void transform_inputs(const Number* in, std::int64_t first, std::int64_t count, Number* to) const {
    const std::int64_t channels = t_.in.c, step = input_step();
    for (std::int64_t i = 0; i < count; ++i) {
      const Place place = place_of(t_, first + i);
      const auto at = pixels_at<4>(t_.in, place.y - t_.pad, place.x - t_.pad);
      const Number* block = in + place.image * t_.in.image();
      for (std::int64_t c = 0; c < channels; c += kLanes, block += t_.in.block()) {
        Tile v;
        transform_input(block, at, v);
        Number* const row = to + i * channels + c;
        unrolled<kPoints>([&](auto p) __attribute__((always_inline)) { store_bf16(row + p * step, v[p]); });
      }
    }
    const std::int64_t end = (count + kRowStep - 1) / kRowStep * kRowStep;
    for (std::int64_t p = 0; p < kPoints; ++p)
      std::fill(to + p * step + count * channels, to + p * step + end * channels, Number{0});
  }

  void multiply_panel(const Memory& memory, const Number* filters, std::int64_t column,
                      std::int64_t count) const {
    const std::int64_t inputs = t_.in.c, width = panel_width(t_.out.c, column);
    const std::int64_t rows = (count + kRowStep - 1) / kRowStep * kRowStep;
    for (std::int64_t p = 0; p < kPoints; ++p) {
      const Pairs a{memory.inputs + p * input_step(), inputs / 2, 1};
      const Number* const b = filters + p * inputs * t_.out.c + column * inputs;
      float* const products = memory.products + p * product_step();
      switch (width / kLanes) {
        case 1: multiply_rows<24, 1>(rows, a, b, width, inputs / 2, false, products, width); break;
        case 2: multiply_rows<12, 2>(rows, a, b, width, inputs / 2, false, products, width); break;
        case 3: multiply_rows<8, 3>(rows, a, b, width, inputs / 2, false, products, width); break;
        default: multiply_rows<6, 4>(rows, a, b, width, inputs / 2, false, products, width);
      }
    }
  }

  /// A' m A, and what the operation does with it.
  void transform_outputs(const float* products, std::int64_t column, std::int64_t first, std::int64_t count,
                         const float* bias, Number* out) const {
    const std::int64_t width = panel_width(t_.out.c, column), step = product_step();
    for (std::int64_t i = 0; i < count; ++i) {
      const Place place = place_of(t_, first + i);
      const auto at = pixels_at<2>(t_.out, place.y, place.x);
      Number* block = out + place.image * t_.out.image() + column / kLanes * t_.out.block();
      for (std::int64_t c = 0; c < width; c += kLanes, block += t_.out.block()) {
        const float* const m = products + i * width + c;
        std::array<Vec, 8> s;
        unrolled<4>([&](auto j) __attribute__((always_inline)) {
          const Vec m1 = _mm512_loadu_ps(m + (4 + j) * step), m2 = _mm512_loadu_ps(m + (8 + j) * step);
          s[j] = _mm512_loadu_ps(m + j * step) + m1 + m2;
          s[4 + j] = m1 - m2 - _mm512_loadu_ps(m + (12 + j) * step);
        });
        const Vec b = bias == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(bias + column + c);
        unrolled<2>([&](auto y) __attribute__((always_inline)) {
          write(block, at[2 * y], s[4 * y] + s[4 * y + 1] + s[4 * y + 2] + b);
          write(block, at[2 * y + 1], s[4 * y + 1] - s[4 * y + 2] - s[4 * y + 3] + b);
        });
      }
    }
  }
  [[gnu::always_inline]] inline void write(Number* block, std::int64_t at, Vec v) const {
    if (at < 0) return;
    if (accumulate_) v += load_bf16(block + at);
    if (relu_) v = (v < Vec{}) ? Vec{} : v;  // NaN stays
    store_bf16(block + at, v);
  }

  const Tiling t_;
  const bool backward_, accumulate_, relu_, bias_;
  const int threads_;
  const std::int64_t tiles_;  ///< that are transformed at a time
};

/// Gradients of filters. Blocks of tiles are transformed by several threads at a time; then their products
/// are added, for each element in the order of the blocks: so sums do not depend on the number of threads.
class FilterGradients : public PreparedOp {
 public:
  FilterGradients(const ConvGeometry& g, std::vector<TensorDesc> args, bool bias)
      : t_(forward_tiling(g)),
        bias_(bias),
        threads_(omp_get_max_threads()),
        tiles_(g.c * g.k > kFewSums ? 384 : 96) {
    args_ = std::move(args);
    algorithm_ = "winograd:own";
    const std::int64_t for_thread = std::clamp<std::int64_t>(kCacheBytes / block_bytes(), 1, 4);
    together_ = std::min(threads_ * for_thread, blocks());
    workspace_bytes_ = sum_bytes() + together_ * block_bytes();
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const override {
    const auto* const in = reinterpret_cast<const Number*>(pointers[0]);
    const auto* const gradients = reinterpret_cast<const Number*>(pointers[1]);
    auto* const filters = reinterpret_cast<float*>(pointers[2]);
    auto* const bias = bias_ ? reinterpret_cast<float*>(pointers[3]) : nullptr;
    auto* const sums = as<float>(workspace);  // [point][input][output]
    const std::int64_t panels = (t_.out.c + kPanel - 1) / kPanel;
    if (bias != nullptr) std::fill(bias, bias + t_.out.c, 0.0F);
#pragma omp parallel num_threads(threads_)
    for (std::int64_t first = 0; first < blocks(); first += together_) {
      const std::int64_t count = std::min(together_, blocks() - first);
#pragma omp for schedule(dynamic)
      for (std::int64_t b = 0; b < count; ++b) transform(in, gradients, first + b, memory_of(workspace, b));
#pragma omp for schedule(dynamic)
      for (std::int64_t i = 0; i < kPoints * panels; ++i)
        for (std::int64_t b = 0; b < count; ++b)
          multiply_panel(memory_of(workspace, b), i / panels, i % panels * kPanel, pairs_of(first + b),
                         first + b > 0, sums);
      if (bias == nullptr) continue;
#pragma omp single
      for (std::int64_t b = 0; b < count; ++b) {
        const float* const of_block = memory_of(workspace, b).bias;
        for (std::int64_t k = 0; k < t_.out.c; ++k) bias[k] += of_block[k];
      }
    }
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t k = 0; k < t_.out.c; k += kLanes)
      for (std::int64_t c = 0; c < t_.in.c; ++c) finish(sums, k, c, filters);
  }

 private:
  static constexpr std::int64_t kCacheBytes = std::int64_t{3} << 18;
  static constexpr std::int64_t kFewSums = std::int64_t{1} << 17;  ///< more are read and written less often

  /// Of a block of tiles.
  struct Memory {
    Number* inputs;     ///< [point][tile pair][input][2]
    Number* gradients;  ///< [point][tile pair][output][2]
    float* bias;        ///< gradients of the biases
  };
  std::int64_t blocks() const { return (t_.tiles() + tiles_ - 1) / tiles_; }
  std::int64_t pairs_of(std::int64_t block) const {
    return (std::min(tiles_, t_.tiles() - block * tiles_) + 1) / 2;
  }
  std::int64_t input_step() const { return point_step<Number>(tiles_ * t_.in.c); }
  std::int64_t gradient_step() const { return point_step<Number>(tiles_ * t_.out.c); }
  std::int64_t sum_bytes() const { return bytes_of<float>(kPoints * t_.in.c * t_.out.c); }
  std::int64_t input_bytes() const { return bytes_of<Number>(kPoints * input_step()); }
  std::int64_t gradient_bytes() const { return bytes_of<Number>(kPoints * gradient_step()); }
  std::int64_t block_bytes() const { return input_bytes() + gradient_bytes() + bytes_of<float>(t_.out.c); }
  Memory memory_of(std::byte* workspace, std::int64_t block) const {
    std::byte* const begin = workspace + sum_bytes() + block * block_bytes();
    return {as<Number>(begin), as<Number>(begin + input_bytes()),
            as<float>(begin + input_bytes() + gradient_bytes())};
  }

  void transform(const Number* in, const Number* gradients, std::int64_t block, const Memory& to) const {
    std::fill(to.bias, to.bias + t_.out.c, 0.0F);
    for (std::int64_t pair = 0; pair < pairs_of(block); ++pair) {
      const std::int64_t tile = block * tiles_ + 2 * pair;
      transform_inputs(in, tile, to.inputs + 2 * pair * t_.in.c);
      transform_gradients(gradients, tile, to.gradients + 2 * pair * t_.out.c, to.bias);
    }
  }

  /// Transforms the inputs of a tile and the next one, which may be past the last: then they are zeros.
  void transform_inputs(const Number* in, std::int64_t tile, Number* to) const {
    const bool two = tile + 1 < t_.tiles();
    const Place a = place_of(t_, tile), b = place_of(t_, tile + (two ? 1 : 0));
    const auto at_a = pixels_at<4>(t_.in, a.y - t_.pad, a.x - t_.pad);
    const auto at_b = pixels_at<4>(t_.in, b.y - t_.pad, b.x - t_.pad);
    for (std::int64_t c = 0; c < t_.in.c; c += kLanes) {
      Tile first, second{};
      transform_input(in + a.image * t_.in.image() + c * t_.in.h * t_.in.w, at_a, first);
      if (two) transform_input(in + b.image * t_.in.image() + c * t_.in.h * t_.in.w, at_b, second);
      Number* const row = to + 2 * c;
      unrolled<kPoints>([&](auto p) __attribute__((always_inline)) {
        store_pairs(row + p * input_step(), first[p], second[p]);
      });
    }
  }
  void transform_gradients(const Number* gradients, std::int64_t tile, Number* to, float* bias) const {
    const bool two = tile + 1 < t_.tiles();
    const Place a = place_of(t_, tile), b = place_of(t_, tile + (two ? 1 : 0));
    const auto at_a = pixels_at<2>(t_.out, a.y, a.x), at_b = pixels_at<2>(t_.out, b.y, b.x);
    for (std::int64_t c = 0; c < t_.out.c; c += kLanes) {
      Tile first, second{};
      Vec sum = _mm512_loadu_ps(bias + c);
      transform_gradient(gradients + a.image * t_.out.image() + c * t_.out.h * t_.out.w, at_a, first, sum);
      if (two)
        transform_gradient(gradients + b.image * t_.out.image() + c * t_.out.h * t_.out.w, at_b, second, sum);
      _mm512_storeu_ps(bias + c, sum);
      Number* const row = to + 2 * c;
      unrolled<kPoints>([&](auto p) __attribute__((always_inline)) {
        store_pairs(row + p * gradient_step(), first[p], second[p]);
      });
    }
  }

  void multiply_panel(const Memory& memory, std::int64_t point, std::int64_t column, std::int64_t pairs,
                      bool add, float* sums) const {
    const std::int64_t inputs = t_.in.c, outputs = t_.out.c;
    const Pairs a{memory.inputs + point * input_step(), 1, inputs};
    const Number* const b = memory.gradients + point * gradient_step() + 2 * column;
    float* const to = sums + point * inputs * outputs + column;
    switch (panel_width(outputs, column) / kLanes) {
      case 1: multiply_rows<16, 1>(inputs, a, b, outputs, pairs, add, to, outputs); break;
      case 2: multiply_rows<8, 2>(inputs, a, b, outputs, pairs, add, to, outputs); break;
      case 3: multiply_rows<8, 3>(inputs, a, b, outputs, pairs, add, to, outputs); break;
      default: multiply_rows<4, 4>(inputs, a, b, outputs, pairs, add, to, outputs);
    }
  }

  /// Writes the gradients of the filters from input `c` to 16 outputs.
  void finish(const float* sums, std::int64_t k, std::int64_t c, float* filters) const {
    Tile u;
    for (std::size_t p = 0; p < kPoints; ++p)
      u[p] = _mm512_loadu_ps(sums + (static_cast<std::int64_t>(p) * t_.in.c + c) * t_.out.c + k);
    std::array<Vec, 9> g;
    transform_filter_gradient(u, g);
    alignas(64) std::array<std::array<float, kLanes>, 9> elements;
    for (std::size_t f = 0; f < 9; ++f) _mm512_store_ps(elements[f].data(), g[f]);
    float* const to = filters + (k * t_.in.c + c) * 9;
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      for (std::size_t f = 0; f < 9; ++f)
        to[static_cast<std::int64_t>(lane) * t_.in.c * 9 + static_cast<std::int64_t>(f)] = elements[f][lane];
  }

  const Tiling t_;
  const bool bias_;
  const int threads_;
  const std::int64_t tiles_;   ///< of a block
  std::int64_t together_ = 0;  ///< blocks that are transformed before their products are added
};

/// Whether the method is faster than the library's direct convolution: measured from 32 channels on both
/// sides on. Tiles that hang over the border compute what nobody sees.
bool pays(const ConvGeometry& g, DataType type, const Side& out) {
  const std::int64_t computed = (out.h + 1) / 2 * 2 * ((out.w + 1) / 2 * 2);
  return type == DataType::bf16 && g.n > 0 && g.filter == 3 && g.stride == 1 && g.groups == 1 && g.c >= 32 &&
         g.k >= 32 && g.c % kLanes == 0 && g.k % kLanes == 0 && 4 * out.h * out.w >= 3 * computed;
}

/// The arguments: activations of bf16 in blocks of 16 channels, all else plain f32.
template <class Op>
std::vector<TensorDesc> tensors_of(const Op& op) {
  std::vector<TensorDesc> tensors;
  for (const Argument& arg : op.arguments()) {
    const bool activations = arg.dims.size() == 4 && !arg.name.ends_with("weights");
    tensors.push_back(activations ? blocked_activations(arg.dims, kLanes, DataType::bf16)
                                  : TensorDesc{arg.dims, arg.type, nullptr});
  }
  return tensors;
}

}  // namespace

Prepared prepare_winograd(const ConvForward& op, DataType type) {
  const Tiling tiling = forward_tiling(op.g);
  if (!pays(op.g, type, tiling.out)) return nullptr;
  return std::make_shared<Outputs>(tiling, false, tensors_of(op), op.accumulate, op.relu, op.bias);
}
Prepared prepare_winograd(const ConvBackwardData& op, DataType type) {
  const Tiling tiling = backward_tiling(op.g);
  if (!pays(op.g, type, tiling.out)) return nullptr;
  return std::make_shared<Outputs>(tiling, true, tensors_of(op), false, false, false);
}
Prepared prepare_winograd(const ConvBackwardWeights& op, DataType type) {
  if (!pays(op.g, type, forward_tiling(op.g).out)) return nullptr;
  return std::make_shared<FilterGradients>(op.g, tensors_of(op), op.bias);
}

}  // namespace convnet::cpu::own

#else

namespace convnet::cpu::own {

Prepared prepare_winograd(const ConvForward&, DataType) { return nullptr; }
Prepared prepare_winograd(const ConvBackwardData&, DataType) { return nullptr; }
Prepared prepare_winograd(const ConvBackwardWeights&, DataType) { return nullptr; }

}  // namespace convnet::cpu::own

#endif
