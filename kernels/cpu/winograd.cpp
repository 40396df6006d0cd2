// Convolutions by Winograd's method (winograd_transforms.h): 3x3 with stride 1 and 2, and 5x5. Tiles of
// inputs and the filters are transformed, and over all channels and tiles each point of a transformed tile is
// a product of matrices. Transforms are made in f32; for products of bf16 numbers they are rounded once. Sums
// are f32.
#include "kernels/cpu/own_kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)

#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/own_kernel.h"
#include "kernels/cpu/winograd_transforms.h"

namespace convnet::cpu::own {
namespace {

using namespace winograd;

constexpr std::int64_t kPanel = 64;    ///< most columns of a product that are computed together
constexpr std::int64_t kRowStep = 24;  ///< a multiple of the rows of tiles that any multiply() takes

/// What a factor of products is read as: 32 bits, with one f32 number, or two bf16 numbers whose products
/// with those of another unit are added.
using Unit = std::uint32_t;
using Units = Vector<Unit, kLanes>::Type;

/// Products of numbers of a type.
template <class T>
struct Product;

template <>
struct Product<float> {
  static constexpr std::int64_t depth = 1;  ///< numbers in a unit
  /// sum + a b.
  [[gnu::always_inline]] static inline Vec add(Vec sum, Unit a, const Units& b) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(a))), (__m512)b, sum);
  }
  /// Stores lane i of the vectors as unit i.
  [[gnu::always_inline]] static inline void store_units(Unit* p, const std::array<Vec, 1>& v) {
    store(p, v[0]);
  }
};

#if defined(__AVX512BF16__)
template <>
struct Product<BFloat16> {
  static constexpr std::int64_t depth = 2;
  [[gnu::always_inline]] static inline Vec add(Vec sum, Unit a, const Units& b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(static_cast<int>(a)), (__m512bh)b);
  }
  [[gnu::always_inline]] static inline void store_units(Unit* p, const std::array<Vec, 2>& v) {
    constexpr std::array<std::uint16_t, 32> order = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                     21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                     11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    Vector<std::uint16_t, 32>::Type indices;
    load(order.data(), indices);
    store(p, (Units)_mm512_maskz_permutexvar_epi16(~__mmask32{0}, (__m512i)indices,
                                                   (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0])));
  }
};
#endif

/// Of a place among taps or points, which is counted in int.
constexpr std::size_t index_of(int at) { return static_cast<std::size_t>(at); }

/// One side of the convolution: (N,C,H,W) stored as nChw16c.
struct Side {
  std::int64_t channels, h, w;
  std::int64_t c() const { return (channels + kLanes - 1) / kLanes * kLanes; }  ///< with those of padding
  std::int64_t image() const { return c() * h * w; }
  std::int64_t block() const { return kLanes * h * w; }  ///< numbers of 16 channels of an image
};

/// Size x Size pixels of 16 channels, from (y,x) on; zeros outside of the image.
template <int Size, class T>
class Window {
 public:
  /// Nothing of an image.
  Window() { at_.fill(-1); }
  Window(const Side& side, std::int64_t y, std::int64_t x) {
    for (int i = 0; i < Size; ++i)
      for (int j = 0; j < Size; ++j) {
        const bool inside = y + i >= 0 && y + i < side.h && x + j >= 0 && x + j < side.w;
        at_[index_of(i * Size + j)] = inside ? ((y + i) * side.w + x + j) * kLanes : -1;
      }
  }
  bool inside(int i, int j) const { return at_[index_of(i * Size + j)] >= 0; }
  /// In a block of 16 channels of the image; only for what is inside.
  T* pixel(T* block, int i, int j) const { return block + at_[index_of(i * Size + j)]; }

  [[gnu::always_inline]] Vec load(const T* block, int i, int j) const {
    const std::int64_t at = at_[index_of(i * Size + j)];
    const T* const p = at < 0 ? kZeros.data() : block + at;
    _mm_prefetch(p + Size * kLanes, _MM_HINT_T0);  // the tiles to the right come next
    Vec v;
    load_floats<kLanes>(p, kLanes, v);
    return v;
  }

 private:
  alignas(64) static constexpr std::array<T, kLanes> kZeros{};
  std::array<std::int64_t, std::size_t{Size} * Size> at_;
};

/// A convolution, forward or backward, as tiles of its outputs.
template <class Method>
struct Tiling {
  std::int64_t n;
  Side in, out;
  std::int64_t pad;  ///< zeros before the first row and column of the input

  std::int64_t rows() const { return (out.h + Method::outputs - 1) / Method::outputs; }
  std::int64_t columns() const { return (out.w + Method::outputs - 1) / Method::outputs; }
  std::int64_t tiles() const { return n * rows() * columns(); }

  struct Place {
    std::int64_t image, row, column;  ///< of tiles
  };
  Place place_of(std::int64_t tile) const {
    const std::int64_t row = tile / columns();
    return {row / rows(), row % rows(), tile % columns()};
  }
  /// The pixels of a tile, which begin where the tile's first output or input is.
  template <class T>
  Window<Method::outputs, T> outputs(const Place& place) const {
    return {out, place.row * Method::outputs, place.column * Method::outputs};
  }
  template <class T>
  Window<Method::inputs, T> inputs(const Place& place) const {
    return {in, place.row * Method::step - pad, place.column * Method::step - pad};
  }
};

template <class Method>
Tiling<Method> forward_tiling(const ConvGeometry& g) {
  return {g.n, {g.c, g.h, g.w}, {g.k, g.oh, g.ow}, g.pad};
}
/// Gradients of the input are a convolution of the output's with the filters turned around.
template <class Method>
Tiling<typename Method::Backward> backward_tiling(const ConvGeometry& g) {
  return {g.n, {g.k, g.oh, g.ow}, {g.c, g.h, g.w}, Method::stride == 1 ? Method::taps - 1 - g.pad : 0};
}

/// A matrix of units: (row, k) is at row * row_step + k * step.
struct Factor {
  const Unit* data;
  std::int64_t row_step, step;
};

/// out(row, column) = [out +] sum over k < depth of a(row, k) b(k, column), for Rows rows and 16 * Vecs
/// columns. `b` has the units of all columns one after the other, `b_step` from one k to the next.
template <class T, int Rows, int Vecs>
void multiply(const Factor& a, const Unit* b, std::int64_t b_step, std::int64_t depth, bool add, float* out,
              std::int64_t out_step) {
  std::array<Line<Vecs>, Rows> sums;
  unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<Vecs>([&](auto z) __attribute__((always_inline)) { sums[r][z] = Vec{}; });
  });
  const Unit* from = a.data;
  for (std::int64_t k = 0; k < depth; ++k, from += a.step, b += b_step) {
    std::array<Units, Vecs> columns;
    unrolled<Vecs>([&](auto z) __attribute__((always_inline)) { load(b + z * kLanes, columns[z]); });
    unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
      const Unit factor = from[r * a.row_step];
      unrolled<Vecs>([&](auto z) __attribute__((always_inline)) {
        sums[r][z] = Product<T>::add(sums[r][z], factor, columns[z]);
      });
    });
  }
  // Adding what is there last keeps sums over many blocks of tiles exact.
  unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<Vecs>([&](auto z) __attribute__((always_inline)) {
      float* const to = out + r * out_step + z * kLanes;
      Vec old{};
      if (add) load(to, old);
      store(to, old + sums[r][z]);
    });
  });
}

/// The same for `rows` rows, a multiple of Rows.
template <class T, int Rows, int Vecs>
void multiply_rows(std::int64_t rows, const Factor& a, const Unit* b, std::int64_t b_step, std::int64_t depth,
                   bool add, float* out, std::int64_t out_step) {
  for (std::int64_t r = 0; r < rows; r += Rows)
    multiply<T, Rows, Vecs>({a.data + r * a.row_step, a.row_step, a.step}, b, b_step, depth, add,
                            out + r * out_step, out_step);
}

/// Columns of the panel that begins at `first`.
std::int64_t panel_width(std::int64_t columns, std::int64_t first) {
  return std::min(kPanel, columns - first);
}

/// Units from one point of transformed tiles to the next. Steps of a power of two would put all points of a
/// tile into one set of the cache.
std::int64_t point_step(std::int64_t units) { return units + kLanes; }

/// Bytes of `count` units or f32 numbers, rounded up to where the next piece of memory may begin.
std::int64_t bytes_of(std::int64_t count) { return aligned(count * std::int64_t{sizeof(Unit)}); }

/// Forward convolutions and gradients of inputs: outputs from transformed inputs and filters.
template <class Method, class T>
class Outputs : public PreparedOp {
 public:
  /// `backward`: the filters are those of the forward convolution, (I,O,H,W) as seen from here.
  Outputs(const Tiling<Method>& tiling, bool backward, const std::vector<TensorDesc>& args, bool accumulate,
          bool relu, bool bias)
      : t_(tiling),
        backward_(backward),
        accumulate_(accumulate),
        relu_(relu),
        bias_(bias),
        threads_(omp_get_max_threads()) {
    // Every block of tiles reads all filters: the more of them, the larger the blocks.
    const std::int64_t most = shared_bytes() > kCacheBytes ? 192 : 96;
    const std::int64_t of_thread = (t_.tiles() + threads_ - 1) / threads_;
    tiles_ = std::min(most, (of_thread + kRowStep - 1) / kRowStep * kRowStep);
    args_ = args;
    algorithm_ = "winograd:own";
    workspace_bytes_ = shared_bytes() + threads_ * thread_bytes();
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const override {
    const T* const in = as<T>(pointers[0]);
    const float* const filters = as<float>(pointers[1]);
    const float* const bias = bias_ ? as<float>(pointers[2]) : nullptr;
    T* const out = as<T>(pointers.back());
    Unit* const transformed = as<Unit>(workspace);  // [point][panel][input][column]
    const std::int64_t tiles = t_.tiles(), blocks = (tiles + tiles_ - 1) / tiles_;
#pragma omp parallel num_threads(threads_)
    {
      const Memory memory = memory_of(workspace, omp_get_thread_num());
#pragma omp for schedule(static)
      for (std::int64_t o = 0; o < t_.out.c(); o += kLanes) transform_filters(filters, o, transformed);
#pragma omp for schedule(dynamic)
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t first = block * tiles_, count = std::min(tiles_, tiles - first);
        transform_inputs(in, first, count, memory.inputs);
        for (std::int64_t column = 0; column < t_.out.c(); column += kPanel) {
          multiply_panel(memory, transformed, column, count);
          transform_outputs(memory.products, column, first, count, bias, out);
        }
      }
    }
  }

 private:
  static constexpr int kSide = Method::points, kPoints = kSide * kSide;
  static constexpr std::int64_t kDepth = Product<T>::depth;
  static constexpr std::int64_t kCacheBytes = std::int64_t{4} << 20;

  /// Of a thread.
  struct Memory {
    Unit* inputs;     ///< [point][tile][input]
    float* products;  ///< [point][tile][column of a panel]
  };
  std::int64_t in_units() const { return t_.in.c() / kDepth; }
  std::int64_t input_step() const { return point_step(tiles_ * in_units()); }
  std::int64_t product_step() const { return point_step(tiles_ * kPanel); }
  std::int64_t shared_bytes() const { return bytes_of(kPoints * in_units() * t_.out.c()); }
  std::int64_t input_bytes() const { return bytes_of(kPoints * input_step()); }
  std::int64_t thread_bytes() const { return input_bytes() + bytes_of(kPoints * product_step()); }
  Memory memory_of(std::byte* workspace, int thread) const {
    std::byte* const begin = workspace + shared_bytes() + thread * thread_bytes();
    return {as<Unit>(begin), as<float>(begin + input_bytes())};
  }

  /// Tap (y,x) of the filters from input `input` to 16 outputs.
  using Taps = std::array<std::array<float, kLanes>, std::size_t{Method::taps} * Method::taps>;
  void collect(const float* filters, std::int64_t output, std::int64_t input, Taps& taps) const {
    constexpr std::int64_t size = Method::taps * Method::taps;
    const std::int64_t output_step = backward_ ? size : t_.in.channels * size;
    const std::int64_t input_step = backward_ ? t_.out.channels * size : size;
    const std::int64_t lanes =
        input < t_.in.channels ? std::clamp<std::int64_t>(t_.out.channels - output, 0, kLanes) : 0;
    if (lanes < kLanes) taps = {};
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const float* const from = filters + (output + lane) * output_step + input * input_step;
      for (std::int64_t f = 0; f < size; ++f)
        taps[static_cast<std::size_t>(backward_ ? size - 1 - f : f)][static_cast<std::size_t>(lane)] =
            from[f];
    }
  }

  /// Transforms the filters of 16 outputs.
  void transform_filters(const float* filters, std::int64_t output, Unit* to) const {
    const std::int64_t panel = output / kPanel * kPanel, width = panel_width(t_.out.c(), panel);
    for (std::int64_t unit = 0; unit < in_units(); ++unit) {
      std::array<std::array<Vec, kDepth>, kPoints> u;
      unrolled<kDepth>([&](auto part) {
        alignas(64) Taps taps;
        collect(filters, output, unit * kDepth + part, taps);
        transform<Method::taps, kSide>(
            [&](int i, int j) __attribute__((always_inline)) {
              Vec v;
              load(taps[index_of(i * Method::taps + j)].data(), v);
              return v;
            },
            Method::filter,
            [&](int i, int j, Vec v)
                __attribute__((always_inline)) { u[index_of(i * kSide + j)][part] = v; });
      });
      Unit* const first = to + panel * in_units() + unit * width + (output - panel);
      for (std::size_t p = 0; p < kPoints; ++p)
        Product<T>::store_units(first + static_cast<std::int64_t>(p) * in_units() * t_.out.c(), u[p]);
    }
  }

  /// Transforms the inputs of `count` tiles; rows up to the next multiple of kRowStep become zeros.
  void transform_inputs(const T* in, std::int64_t first, std::int64_t count, Unit* to) const {
    const std::int64_t step = input_step();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto place = t_.place_of(first + i);
      const auto window = t_.template inputs<const T>(place);
      const T* block = in + place.image * t_.in.image();
      Unit* row = to + i * in_units();
      for (std::int64_t c = 0; c < t_.in.c(); c += kLanes) {
        transform<Method::inputs, kSide>(
            [&](int y, int x) __attribute__((always_inline)) { return window.load(block, y, x); },
            Method::input,
            [&](int y, int x, Vec v) __attribute__((always_inline)) {
              store_floats<kLanes>(reinterpret_cast<T*>(row + (y * kSide + x) * step), kLanes, v);
            });
        block += t_.in.block();
        row += kLanes / kDepth;
      }
    }
    const std::int64_t end = (count + kRowStep - 1) / kRowStep * kRowStep;
    for (std::int64_t p = 0; p < kPoints; ++p)
      std::fill(to + p * step + count * in_units(), to + p * step + end * in_units(), Unit{0});
  }

  void multiply_panel(const Memory& memory, const Unit* filters, std::int64_t column,
                      std::int64_t count) const {
    const std::int64_t depth = in_units(), width = panel_width(t_.out.c(), column);
    const std::int64_t rows = (count + kRowStep - 1) / kRowStep * kRowStep;
    for (std::int64_t p = 0; p < kPoints; ++p) {
      const Factor a{memory.inputs + p * input_step(), depth, 1};
      const Unit* const b = filters + p * depth * t_.out.c() + column * depth;
      float* const products = memory.products + p * product_step();
      switch (width / kLanes) {
        case 1: multiply_rows<T, 24, 1>(rows, a, b, width, depth, false, products, width); break;
        case 2: multiply_rows<T, 12, 2>(rows, a, b, width, depth, false, products, width); break;
        case 3: multiply_rows<T, 8, 3>(rows, a, b, width, depth, false, products, width); break;
        default: multiply_rows<T, 6, 4>(rows, a, b, width, depth, false, products, width);
      }
    }
  }

  /// Transforms products to outputs, and does with them what the operation does.
  void transform_outputs(const float* products, std::int64_t column, std::int64_t first, std::int64_t count,
                         const float* bias, T* out) const {
    const std::int64_t width = panel_width(t_.out.c(), column), step = product_step();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto place = t_.place_of(first + i);
      const auto window = t_.template outputs<T>(place);
      T* block = out + place.image * t_.out.image() + column / kLanes * t_.out.block();
      for (std::int64_t c = 0; c < width; c += kLanes, block += t_.out.block()) {
        const float* const from = products + i * width + c;
        Vec b{};
        if (bias != nullptr)
          load_floats<kLanes>(
              bias + column + c,
              static_cast<std::size_t>(std::min<std::int64_t>(kLanes, t_.out.channels - column - c)), b);
        transform<kSide, Method::outputs>(
            [&](int y, int x) __attribute__((always_inline)) {
              Vec v;
              load(from + (y * kSide + x) * step, v);
              return v;
            },
            Method::output,
            [&](int y, int x, Vec v) __attribute__((always_inline)) {
              if (window.inside(y, x)) write(window.pixel(block, y, x), v + b);
            });
      }
    }
  }
  [[gnu::always_inline]] inline void write(T* pixel, Vec v) const {
    if (accumulate_) {
      Vec old;
      load_floats<kLanes>(pixel, kLanes, old);
      v += old;
    }
    if (relu_) v = (v < Vec{}) ? Vec{} : v;  // NaN stays
    store_floats<kLanes>(pixel, kLanes, v);
  }

  const Tiling<Method> t_;
  const bool backward_, accumulate_, relu_, bias_;
  const int threads_;
  std::int64_t tiles_ = 0;  ///< that are transformed at a time
};

/// Gradients of filters. Blocks of tiles are transformed by several threads at a time; then their products
/// are added, for each point in the order of the blocks: so sums do not depend on the number of threads.
template <class Method, class T>
class FilterGradients : public PreparedOp {
 public:
  FilterGradients(const Tiling<Method>& tiling, const std::vector<TensorDesc>& args, bool bias)
      : t_(tiling), bias_(bias), threads_(omp_get_max_threads()), tiles_(sum_bytes() > kFewSums ? 384 : 96) {
    args_ = args;
    algorithm_ = "winograd:own";
    const std::int64_t for_thread = std::clamp<std::int64_t>(kCacheBytes / block_bytes(), 1, 4);
    together_ = std::min(threads_ * for_thread, blocks());
    workspace_bytes_ = sum_bytes() + together_ * block_bytes();
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const override {
    const T* const in = as<T>(pointers[0]);
    const T* const gradients = as<T>(pointers[1]);
    float* const filters = as<float>(pointers[2]);
    float* const bias = bias_ ? as<float>(pointers[3]) : nullptr;
    float* const sums = as<float>(workspace);  // [point][input][output]
    const std::int64_t panels = (t_.out.c() + kPanel - 1) / kPanel;
    if (bias != nullptr) std::fill(bias, bias + t_.out.channels, 0.0F);
#pragma omp parallel num_threads(threads_)
    {
      for (std::int64_t first = 0; first < blocks(); first += together_) {
        const std::int64_t count = std::min(together_, blocks() - first);
#pragma omp for schedule(dynamic)
        for (std::int64_t b = 0; b < count; ++b)
          transform_block(in, gradients, first + b, memory_of(workspace, b));
#pragma omp for schedule(dynamic)
        for (std::int64_t i = 0; i < kPoints * panels; ++i)
          for (std::int64_t b = 0; b < count; ++b)
            multiply_panel(memory_of(workspace, b), i / panels, i % panels * kPanel, depth_of(first + b),
                           first + b > 0, sums);
        if (bias == nullptr) continue;
#pragma omp single
        for (std::int64_t b = 0; b < count; ++b) {
          const float* const of_block = memory_of(workspace, b).bias;
          for (std::int64_t k = 0; k < t_.out.channels; ++k) bias[k] += of_block[k];
        }
      }
#pragma omp for schedule(static)
      for (std::int64_t k = 0; k < t_.out.c(); k += kLanes)
        for (std::int64_t c = 0; c < t_.in.channels; ++c) finish(sums, k, c, filters);
    }
  }

 private:
  static constexpr int kSide = Method::points, kPoints = kSide * kSide, kOutputs = Method::outputs;
  static constexpr std::int64_t kDepth = Product<T>::depth;
  static constexpr std::int64_t kCacheBytes = std::int64_t{3} << 18;
  static constexpr std::int64_t kFewSums = std::int64_t{8} << 20;  ///< more are read and written less often

  /// Of a block of tiles. Units hold kDepth tiles.
  struct Memory {
    Unit* inputs;     ///< [point][unit][input]
    Unit* gradients;  ///< [point][unit][output]
    float* bias;      ///< gradients of the biases
  };
  std::int64_t blocks() const { return (t_.tiles() + tiles_ - 1) / tiles_; }
  std::int64_t depth_of(std::int64_t block) const {
    return (std::min(tiles_, t_.tiles() - block * tiles_) + kDepth - 1) / kDepth;
  }
  std::int64_t input_step() const { return point_step(tiles_ / kDepth * t_.in.c()); }
  std::int64_t gradient_step() const { return point_step(tiles_ / kDepth * t_.out.c()); }
  std::int64_t sum_bytes() const { return bytes_of(kPoints * t_.in.c() * t_.out.c()); }
  std::int64_t input_bytes() const { return bytes_of(kPoints * input_step()); }
  std::int64_t gradient_bytes() const { return bytes_of(kPoints * gradient_step()); }
  std::int64_t block_bytes() const { return input_bytes() + gradient_bytes() + bytes_of(t_.out.c()); }
  Memory memory_of(std::byte* workspace, std::int64_t block) const {
    std::byte* const begin = workspace + sum_bytes() + block * block_bytes();
    return {as<Unit>(begin), as<Unit>(begin + input_bytes()),
            as<float>(begin + input_bytes() + gradient_bytes())};
  }

  void transform_block(const T* in, const T* gradients, std::int64_t block, const Memory& to) const {
    std::fill(to.bias, to.bias + t_.out.c(), 0.0F);
    for (std::int64_t unit = 0; unit < depth_of(block); ++unit) {
      const std::int64_t tile = block * tiles_ + kDepth * unit;
      transform_inputs(in, tile, to.inputs + unit * t_.in.c());
      transform_gradients(gradients, tile, to.gradients + unit * t_.out.c(), to.bias);
    }
  }

  /// The tiles of a unit on one side: those past the last are zeros.
  template <int Size>
  struct UnitTiles {
    std::array<Window<Size, const T>, kDepth> windows;
    std::array<const T*, kDepth> images;
  };
  template <int Size, class WindowOf>
  UnitTiles<Size> tiles_of(const T* data, const Side& side, std::int64_t tile, const WindowOf& window) const {
    UnitTiles<Size> tiles;
    for (std::size_t part = 0; part < kDepth; ++part, ++tile) {
      tiles.images[part] = data;
      if (tile >= t_.tiles()) continue;
      const auto place = t_.place_of(tile);
      tiles.windows[part] = window(place);
      tiles.images[part] += place.image * side.image();
    }
    return tiles;
  }

  void transform_inputs(const T* in, std::int64_t tile, Unit* to) const {
    const auto tiles = tiles_of<Method::inputs>(
        in, t_.in, tile, [&](const auto& place) { return t_.template inputs<const T>(place); });
    const std::int64_t step = input_step();
    for (std::int64_t c = 0; c < t_.in.c(); c += kLanes) {
      std::array<std::array<Vec, kDepth>, kPoints> v;
      unrolled<kDepth>([&](auto part) __attribute__((always_inline)) {
        const T* const block = tiles.images[part] + c / kLanes * t_.in.block();
        transform<Method::inputs, kSide>(
            [&](int y, int x)
                __attribute__((always_inline)) { return tiles.windows[part].load(block, y, x); },
            Method::input,
            [&](int y, int x, Vec value)
                __attribute__((always_inline)) { v[index_of(y * kSide + x)][part] = value; });
      });
      unrolled<kPoints>([&](auto p) __attribute__((always_inline)) {
        Product<T>::store_units(to + p * step + c, v[p]);
      });
    }
  }
  /// Adds the gradients to those of the biases, too.
  void transform_gradients(const T* gradients, std::int64_t tile, Unit* to, float* bias) const {
    const auto tiles = tiles_of<kOutputs>(
        gradients, t_.out, tile, [&](const auto& place) { return t_.template outputs<const T>(place); });
    const std::int64_t step = gradient_step();
    for (std::int64_t c = 0; c < t_.out.c(); c += kLanes) {
      std::array<std::array<Vec, kDepth>, kPoints> v;
      Vec sum;
      load(bias + c, sum);
      unrolled<kDepth>([&](auto part) __attribute__((always_inline)) {
        const T* const block = tiles.images[part] + c / kLanes * t_.out.block();
        transform<kOutputs, kSide>(
            [&](int y, int x) __attribute__((always_inline)) {
              const Vec value = tiles.windows[part].load(block, y, x);
              sum += value;
              return value;
            },
            Method::gradient,
            [&](int y, int x, Vec value)
                __attribute__((always_inline)) { v[index_of(y * kSide + x)][part] = value; });
      });
      store(bias + c, sum);
      unrolled<kPoints>([&](auto p) __attribute__((always_inline)) {
        Product<T>::store_units(to + p * step + c, v[p]);
      });
    }
  }

  void multiply_panel(const Memory& memory, std::int64_t point, std::int64_t column, std::int64_t depth,
                      bool add, float* sums) const {
    const std::int64_t inputs = t_.in.c(), outputs = t_.out.c();
    const Factor a{memory.inputs + point * input_step(), 1, inputs};
    const Unit* const b = memory.gradients + point * gradient_step() + column;
    float* const to = sums + point * inputs * outputs + column;
    switch (panel_width(outputs, column) / kLanes) {
      case 1: multiply_rows<T, 16, 1>(inputs, a, b, outputs, depth, add, to, outputs); break;
      case 2: multiply_rows<T, 8, 2>(inputs, a, b, outputs, depth, add, to, outputs); break;
      case 3: multiply_rows<T, 8, 3>(inputs, a, b, outputs, depth, add, to, outputs); break;
      default: multiply_rows<T, 4, 4>(inputs, a, b, outputs, depth, add, to, outputs);
    }
  }

  /// Writes the gradients of the filters from input `c` to 16 outputs.
  void finish(const float* sums, std::int64_t k, std::int64_t c, float* filters) const {
    constexpr std::int64_t size = Method::taps * Method::taps;
    const std::int64_t step = t_.in.c() * t_.out.c();
    const float* const from = sums + c * t_.out.c() + k;
    alignas(64) std::array<std::array<float, kLanes>, size> taps;
    transform<kSide, Method::taps>(
        [&](int i, int j) __attribute__((always_inline)) {
          Vec v;
          load(from + (i * kSide + j) * step, v);
          return v;
        },
        Method::filter_gradient,
        [&](int i, int j, Vec v)
            __attribute__((always_inline)) { store(taps[index_of(i * Method::taps + j)].data(), v); });
    float* const to = filters + (k * t_.in.channels + c) * size;
    for (std::int64_t lane = 0; lane < std::min<std::int64_t>(kLanes, t_.out.channels - k); ++lane)
      for (std::int64_t f = 0; f < size; ++f)
        to[lane * t_.in.channels * size + f] =
            taps[static_cast<std::size_t>(f)][static_cast<std::size_t>(lane)];
  }

  const Tiling<Method> t_;
  const bool bias_;
  const int threads_;
  const std::int64_t tiles_;   ///< of a block
  std::int64_t together_ = 0;  ///< blocks that are transformed before their products are added
};

/// When a method was measured to be faster than the library.
struct Range {
  double least_used;  ///< of the outputs that are computed: tiles may hang over the border
  /// Input channels times output channels, with those of padding.
  std::int64_t least_filters, most_filters = std::int64_t{1} << 62;
};
/// `M`: Method, or Method::Backward for gradients of inputs.
template <class Method, class M>
bool pays(const ConvGeometry& g, const Tiling<M>& t, const Range& range) {
  if (g.n == 0 || g.filter != Method::taps || g.stride != Method::stride || g.groups != 1) return false;
  if (Method::stride > 1 && g.pad != 1) return false;  // as Strided2x3Backward wants it
  const std::int64_t computed = t.rows() * t.columns() * M::outputs * M::outputs;
  return static_cast<double>(t.out.h * t.out.w) >= range.least_used * static_cast<double>(computed) &&
         t.in.c() * t.out.c() >= range.least_filters && t.in.c() * t.out.c() <= range.most_filters &&
         2 * g.c >= kLanes && 2 * g.k >= kLanes;
}

enum class Pass { forward, backward_data, backward_weights };

/// Calls f(Method{}, number, tiling) with what computes a pass of a convolution faster than the library, if
/// anything does; else returns null.
template <Pass pass, class F>
Prepared with_method(const ConvGeometry& g, DataType type, const F& f) {
  const auto tried = [&]<class Method, class T>(Method method, T number, const Range& range) -> Prepared {
    const auto t = [&] {
      if constexpr (pass == Pass::backward_data)
        return backward_tiling<Method>(g);
      else
        return forward_tiling<Method>(g);
    }();
    return pays<Method>(g, t, range) ? f(method, number, t) : nullptr;
  };
  Prepared found;
  if (type == DataType::f32) {
    found = tried(F4x3{}, float{}, {0.5, 512, 100'000});
    if (!found) found = tried(F2x5{}, float{}, {0.8, 512});
    if (!found) found = tried(Strided2x3{}, float{}, {0.5, 4000, 100'000});
    return found;
  }
#if defined(__AVX512BF16__)
  found = tried(F2x3{}, BFloat16{}, {0.75, 768});
  if (!found) found = tried(F2x3And2{}, BFloat16{}, {0.8, 1000});
  constexpr Range strided =
      pass == Pass::backward_weights ? Range{0.5, 768, 200'000} : Range{0.5, 4000, 100'000};
  if (!found) found = tried(Strided2x3{}, BFloat16{}, strided);
#endif
  return found;
}

/// The arguments: activations of `type` in blocks of 16 channels, all else plain f32.
template <class Op>
std::vector<TensorDesc> tensors_of(const Op& op, DataType type) {
  std::vector<TensorDesc> tensors;
  for (const Argument& arg : op.arguments()) {
    const bool activations = arg.dims.size() == 4 && !arg.name.ends_with("weights");
    tensors.push_back(activations ? blocked_activations(arg.dims, kLanes, type)
                                  : TensorDesc{arg.dims, arg.type, nullptr});
  }
  return tensors;
}

}  // namespace

Prepared prepare_winograd(const ConvForward& op, DataType type) {
  return with_method<Pass::forward>(
      op.g, type, [&]<class Method, class T>(Method, T, const auto& tiling) -> Prepared {
        return std::make_shared<Outputs<Method, T>>(tiling, false, tensors_of(op, type), op.accumulate,
                                                    op.relu, op.bias);
      });
}
Prepared prepare_winograd(const ConvBackwardData& op, DataType type) {
  return with_method<Pass::backward_data>(
      op.g, type, [&]<class Method, class T>(Method, T, const auto& tiling) -> Prepared {
        return std::make_shared<Outputs<typename Method::Backward, T>>(tiling, true, tensors_of(op, type),
                                                                       false, false, false);
      });
}
Prepared prepare_winograd(const ConvBackwardWeights& op, DataType type) {
  return with_method<Pass::backward_weights>(
      op.g, type, [&]<class Method, class T>(Method, T, const auto& tiling) -> Prepared {
        return std::make_shared<FilterGradients<Method, T>>(tiling, tensors_of(op, type), op.bias);
      });
}

}  // namespace convnet::cpu::own

#else

namespace convnet::cpu::own {

Prepared prepare_winograd(const ConvForward&, DataType) { return nullptr; }
Prepared prepare_winograd(const ConvBackwardData&, DataType) { return nullptr; }
Prepared prepare_winograd(const ConvBackwardWeights&, DataType) { return nullptr; }

}  // namespace convnet::cpu::own

#endif
