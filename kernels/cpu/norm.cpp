// Cross-map response normalisation. oneDNN's is limited to odd windows and one power, and keeps a workspace
// twice the size of the tensor.
#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <type_traits>

#include "convnet/base/error.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/own_kernel.h"
#include "kernels/cpu/power.h"

namespace convnet::cpu::own {
namespace {

constexpr std::int64_t kPlainLanes = 16;  // pixels that are processed together in plain layouts

/// A tile is all channels of some neighbouring pixels of one image. Its values in scratch memory are
/// [pixel][channel] for blocked layouts and [channel][pixel] for plain ones, so that in both a run of the
/// tensor's memory is a run of scratch, and vectors of it are aligned. Zeros around the channels stand for
/// the maps outside [0,C).
struct Tiling {
  ActivationView view;
  std::int64_t below = 0, above = 0;  ///< window(c) = [c - below, c + above], unless grouped
  std::int64_t group = 0;             ///< > 0: windows are the aligned groups of this many channels
  std::int64_t pixels = 0;            ///< number of pixels of a tile
  std::int64_t first = 0;             ///< index in scratch of the first channel of the first pixel
  std::int64_t channel_step = 1, pixel_step = 1;  ///< distances in scratch between channels and pixels
  std::int64_t scratch_floats = 0;

  std::int64_t tiles() const { return (view.spatial + pixels - 1) / pixels; }
};

std::int64_t whole_vectors(std::int64_t floats) {
  return (floats + kPlainLanes - 1) / kPlainLanes * kPlainLanes;
}

/// Chooses tiles such that `arrays` arrays of a tile's values fit into the first-level cache.
Tiling make_tiling(const CrossMapNorm& p, const ActivationView& view, std::int64_t arrays) {
  Tiling t;
  t.view = view;
  if (p.blocked) {
    t.group = p.size;
  } else {
    t.below = std::min(p.size / 2, p.c - 1);
    t.above = std::min(p.size - 1 - p.size / 2, p.c - 1);
  }
  const std::int64_t halo = std::max(t.below, t.above);
  const std::int64_t line = whole_vectors(view.padded_c + halo);
  const std::int64_t enough = 2304 / arrays;  // by measurement
  t.pixels = std::clamp<std::int64_t>(enough / line, 1, 64);
  if (view.block == 1) {
    t.pixels = whole_vectors(t.pixels);
    t.channel_step = t.pixels;
    t.first = halo * t.pixels;
    t.scratch_floats = (view.padded_c + 2 * halo) * t.pixels;
  } else {
    t.pixel_step = line;  // the zeros after a pixel are those before the next one, too
    t.first = whole_vectors(halo);
    t.scratch_floats = t.first + line * t.pixels;
  }
  return t;
}

/// The values of a run: neighbouring pixels of one channel in plain layouts, else the channels of one block
/// and pixel.
template <int Block>
constexpr int kLanes = Block == 1 ? kPlainLanes : Block;
template <int Block>
using Values = typename Vector<float, kLanes<Block>>::Type;

struct Run {
  std::int64_t memory;   ///< offset in the tensor
  std::int64_t scratch;  ///< offset in scratch
  std::int64_t channel;  ///< channel of the first value
  std::int64_t count;    ///< number of values in the tensor; the other lanes are zero and not stored
};

/// Calls f(lanes) with the number of a run's values, as a constant if there are `Lanes`.
template <int Lanes, class F>
[[gnu::always_inline]] inline void with_lanes(const Run& run, const F& f) {
  if (run.count == Lanes)
    f(std::integral_constant<std::size_t, Lanes>{});
  else
    f(static_cast<std::size_t>(run.count));
}

template <int Block, class T>
[[gnu::always_inline]] inline void load_run(const T* tensor, const Run& run, Values<Block>& values) {
  constexpr int lanes = kLanes<Block>;
  with_lanes<lanes>(run, [&](auto count) { load_floats<lanes>(tensor + run.memory, count, values); });
}

template <int Block, class T>
[[gnu::always_inline]] inline void store_run(const Values<Block>& values, const Run& run, T* tensor) {
  constexpr int lanes = kLanes<Block>;
  with_lanes<lanes>(run, [&](auto count) { store_floats<lanes>(tensor + run.memory, count, values); });
}

/// Calls body(run) for all runs of pixels [begin, end) of image n.
template <int Block, class Body>
[[gnu::always_inline]] inline void for_runs(const Tiling& t, std::int64_t n, std::int64_t begin,
                                            std::int64_t end, const Body& body) {
  constexpr std::int64_t kPixels = Block == 1 ? kPlainLanes : 1;
  for (std::int64_t c = 0; c < t.view.padded_c; c += Block) {
    const std::int64_t memory = (n * t.view.padded_c + c) * t.view.spatial;
    const std::int64_t scratch = t.first + c * t.channel_step;
    for (std::int64_t s = begin; s < end; s += kPixels)
      body(Run{memory + s * Block, scratch + (s - begin) * t.pixel_step, c,
               Block == 1 ? std::min(kPixels, end - s) : Block});
  }
}

/// Sums of the scratch array `values` over the aligned group of each channel of a run.
template <int Block>
[[gnu::noinline]] std::array<float, kLanes<Block>> group_sums(const Tiling& t, const Run& run,
                                                              const float* values) {
  std::array<float, kLanes<Block>> sums{};
  for (std::int64_t j = 0; j < std::ssize(sums); ++j) {
    const std::int64_t c = run.channel + (Block == 1 ? 0 : j);
    const std::int64_t first = c - c % t.group;
    const std::int64_t last = std::min(first + t.group, t.view.padded_c);  // padding adds zeros
    const float* value = values + run.scratch + j - (c - first) * t.channel_step;
    for (std::int64_t i = first; i < last; ++i, value += t.channel_step)
      sums[static_cast<std::size_t>(j)] += *value;
  }
  return sums;
}

/// Sums of the scratch array `values` over the channels from `below` before to `above` after each of a run's,
/// or over its group.
template <int Block>
[[gnu::always_inline]] inline void window_sums(const Tiling& t, const Run& run, std::int64_t below,
                                               std::int64_t above, const float* values, Values<Block>& sums) {
  if (t.group > 0) {
    const auto grouped = group_sums<Block>(t, run, values);
    load(grouped.data(), sums);
    return;
  }
  const std::int64_t step = Block == 1 ? t.channel_step : 1;
  const float* first = values + run.scratch - below * step;
  const auto sum = [&](std::int64_t size) __attribute__((always_inline)) {
    load(first, sums);
    for (std::int64_t i = 1; i < size; ++i) {
      Values<Block> next;
      load(first + i * step, next);
      sums += next;
    }
  };
  if (below + above == 4)
    sum(5);  // the size in most nets; a constant makes the loop vanish
  else
    sum(below + above + 1);
}

/// Computes powers of denominators and, unless `inverses` is null, 1 / denominators.
template <class V, class Powers>
[[gnu::always_inline]] inline void take_powers(const Powers& powers_of, const V& denominators, V& powers,
                                               V* inverses = nullptr) {
  std::array<float, sizeof(V) / sizeof(float)> d, first, second;
  std::memcpy(d.data(), &denominators, sizeof d);
#pragma omp simd
  for (std::size_t j = 0; j < d.size(); ++j) {
    const NegativePowers found = powers_of(d[j]);
    first[j] = found.power;
    second[j] = found.inverse;
  }
  load(first.data(), powers);
  if (inverses != nullptr) load(second.data(), *inverses);
}

/// Writes the squares of a tile's values to scratch.
template <int Block, class T>
void square(const Tiling& t, std::int64_t n, std::int64_t begin, std::int64_t end, const T* src,
            float* squares) {
  for_runs<Block>(
      t, n, begin, end, [&](const Run& run) __attribute__((always_inline)) {
        Values<Block> x;
        load_run<Block>(src, run, x);
        store(squares + run.scratch, x * x);
      });
}

/// Calls body(n, first pixel, end, scratch) for each tile, in parallel; scratch has room for `arrays` arrays,
/// with zeros in their halos.
template <class Body>
void for_tiles(const Tiling& t, std::int64_t arrays, const Body& body) {
#pragma omp parallel if (t.view.size() >= kParallelElements)
  {
    constexpr std::size_t kLine = 64;
    std::vector<float> memory(static_cast<std::size_t>(arrays * t.scratch_floats) + kLine / sizeof(float));
    void* scratch = memory.data();
    std::size_t room = memory.size() * sizeof(float);
    std::align(kLine, room - kLine, scratch, room);
#pragma omp for collapse(2) schedule(static)
    for (std::int64_t n = 0; n < t.view.n; ++n)
      for (std::int64_t tile = 0; tile < t.tiles(); ++tile)
        body(n, tile * t.pixels, std::min(t.view.spatial, (tile + 1) * t.pixels),
             static_cast<float*>(scratch));
  }
}

template <int Block, class Powers, class T>
void forward(const CrossMapNorm& p, const Tiling& t, const Powers& powers_of, const T* src, T* dst) {
  const float factor = p.scale / static_cast<float>(p.size), min_div = p.min_div;
  for_tiles(t, 1, [=, &t](std::int64_t n, std::int64_t begin, std::int64_t end, float* squares) {
    square<Block>(t, n, begin, end, src, squares);
    for_runs<Block>(
        t, n, begin, end, [&](const Run& run) __attribute__((always_inline)) {
          Values<Block> x, sums, powers;
          load_run<Block>(src, run, x);
          window_sums<Block>(t, run, t.below, t.above, squares, sums);
          take_powers<Values<Block>>(powers_of, min_div + factor * sums, powers);
          store_run<Block>(x * powers, run, dst);
        });
    zero_padding(t.view, n, begin, end, dst);
  });
}

/// Computes the gradient. With the denominators d and f = d^-power:
/// dx_i = dy_i f_i - 2 power scale/size x_i sum over {c: i in window(c)} of dy_c x_c f_c / d_c
template <int Block, class Powers, class T>
void backward(const CrossMapNorm& p, const Tiling& t, const Powers& powers_of, const T* src,
              const T* diff_dst, T* diff_src) {
  const float factor = p.scale / static_cast<float>(p.size), min_div = p.min_div;
  const float slope = -2 * p.power * factor;
  for_tiles(t, 3, [=, &t](std::int64_t n, std::int64_t begin, std::int64_t end, float* squares) {
    float* ratios = squares + t.scratch_floats;
    float* scaled = ratios + t.scratch_floats;
    square<Block>(t, n, begin, end, src, squares);
    for_runs<Block>(
        t, n, begin, end, [&](const Run& run) __attribute__((always_inline)) {
          Values<Block> x, dy, sums, f, inverses;
          load_run<Block>(src, run, x);
          load_run<Block>(diff_dst, run, dy);
          window_sums<Block>(t, run, t.below, t.above, squares, sums);
          take_powers(powers_of, Values<Block>(min_div + factor * sums), f, &inverses);
          dy *= f;
          store(scaled + run.scratch, dy);
          // Padding may have a denominator of 0; its neighbours must not see the NaN.
          const Values<Block> zeros{};
          store(ratios + run.scratch, x == 0 ? zeros : dy * x * inverses);
        });
    for_runs<Block>(
        t, n, begin, end, [&](const Run& run) __attribute__((always_inline)) {
          Values<Block> x, dy, sums;
          load_run<Block>(src, run, x);
          // The maps whose windows hold i reach as far up as windows reach down.
          window_sums<Block>(t, run, t.above, t.below, ratios, sums);
          load(scaled + run.scratch, dy);
          store_run<Block>(dy + slope * x * sums, run, diff_src);
        });
    zero_padding(t.view, n, begin, end, diff_src);
  });
}

#if defined(__AVX2__)
// In blocks of as many channels as a register holds, windows of the usual sizes are summed in registers: a
// vector is a block of a pixel, and its neighbours' values come from the blocks before and after it.

constexpr int kChannels = kUsualBlock;
using Floats = Vector<float, kChannels>::Type;

/// The values of the channels that are Shift after those of `block`.
template <int Shift>
[[gnu::always_inline]] inline Floats shifted([[maybe_unused]] const Floats& before, const Floats& block,
                                             [[maybe_unused]] const Floats& after) {
#if defined(__AVX512F__)
  const __mmask16 all = 0xffff;  // avoids GCC's warnings of undefined values
  if constexpr (Shift == 0) return block;
  if constexpr (Shift < 0)
    return (Floats)_mm512_maskz_alignr_epi32(all, (__m512i)block, (__m512i)before, 16 + Shift);
  else
    return (Floats)_mm512_maskz_alignr_epi32(all, (__m512i)after, (__m512i)block, Shift);
#else
  static_assert(-4 <= Shift && Shift <= 4);
  if constexpr (Shift == 0) return block;
  // alignr shifts the halves of registers, so `half` has the neighbours of each half.
  if constexpr (Shift < 0) {
    const __m256i half = _mm256_permute2x128_si256((__m256i)before, (__m256i)block, 0x21);
    return (Floats)_mm256_alignr_epi8((__m256i)block, half, 16 + 4 * Shift);
  } else {
    const __m256i half = _mm256_permute2x128_si256((__m256i)block, (__m256i)after, 0x21);
    return (Floats)_mm256_alignr_epi8(half, (__m256i)block, 4 * Shift);
  }
#endif
}
/// Sums over the channels from Below before to Above after each, in this order.
template <int Below, int Above>
[[gnu::always_inline]] inline Floats window(const Floats& before, const Floats& block, const Floats& after) {
  Floats sum = shifted<-Below>(before, block, after);
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    ((sum += shifted<1 + I - Below>(before, block, after)), ...);
  }
  (std::make_integer_sequence<int, Below + Above>{});
  return sum;
}

#if defined(__AVX512F__)
/// Returns x^-1/2, with a relative error of 2^-14 if results are stored as bf16, else of 2e-7.
template <class T>
[[gnu::always_inline]] inline Floats inverse_root(const Floats& x) {
  const __mmask16 all = 0xffff;
  const auto guess = (Floats)_mm512_maskz_rsqrt14_ps(all, (__m512)x);
  if constexpr (sizeof(T) == 2) return guess;
  return guess * (1.5F - 0.5F * x * guess * guess);  // Newton's step
}
/// Takes half the time of the general function: the processor's inverse roots need few of Newton's steps, or
/// none.
template <class T>
[[gnu::always_inline]] inline void take_powers(const NegativeThreeQuarters<T>& /*powers_of*/,
                                               const Floats& denominators, Floats& powers,
                                               Floats* inverses = nullptr) {
  const Floats root = inverse_root<T>(denominators), inverse = root * root;
  powers = inverse * inverse_root<T>(root);
  if (inverses != nullptr) *inverses = inverse;
}
#else
/// Takes less time than the general function, because fewer operations wait for each other: each step uses
/// the first three terms of the series of (1 - h)^-1/4, h = 1 - x root^4, and turns the error e of the root
/// into 7.5 e^3.
template <class T>
[[gnu::always_inline]] inline void take_powers(const NegativeThreeQuarters<T>& /*powers_of*/,
                                               const Floats& denominators, Floats& powers,
                                               Floats* inverses = nullptr) {
  using Bits = Vector<std::uint32_t, kChannels>::Type;
  const Floats least = Floats{} + std::numeric_limits<float>::min();
  const auto x = (Floats)_mm256_max_ps((__m256)least, (__m256)denominators);
  auto root = (Floats)(0x4F584000U - ((Bits)x >> 2));
  const auto step = [&]() __attribute__((always_inline)) {
    const Floats square = root * root, h = 1 - x * square * square;
    root += root * h * (0.25F + 0.15625F * h);
  };
  step();
  step();
  const Floats square = root * root, none = Floats{} + std::numeric_limits<float>::quiet_NaN();
  powers = denominators > 0 ? square * root : none;
  if (inverses != nullptr) *inverses = square * square;
}
#endif

/// Walks over the blocks of channels of one pixel of a tensor.
template <class T>
class Pixel {
 public:
  Pixel(T* tensor, const ActivationView& view, std::int64_t n, std::int64_t s)
      : next_(tensor + n * view.padded_c * view.spatial + s * kChannels), step_(view.spatial * kChannels) {}
  [[gnu::always_inline]] Floats load() {
    Floats v;
    load_floats<kChannels>(next_, AllLanes<kChannels>{}, v);
    __builtin_prefetch(next_ + kAhead);
    next_ += step_;
    return v;
  }
  [[gnu::always_inline]] void store(const Floats& v) {
    store_floats<kChannels>(next_, AllLanes<kChannels>{}, v);
    __builtin_prefetch(next_ + kAhead, 1);
    next_ += step_;
  }

 private:
  /// Distance in elements from a pixel to the one that is prefetched: there are too many blocks for the
  /// processor's own prefetching.
  static constexpr std::int64_t kAhead = std::int64_t{16} * kChannels;
  T* next_;
  std::int64_t step_;
};

/// Calls body(n, s) for all pixels, in parallel, and zeroes the padding of `dst`.
template <class T, class Body>
void for_pixels(const ActivationView& view, T* dst, const Body& body) {
  constexpr std::int64_t kPixels = 64;
#pragma omp parallel if (view.size() >= kParallelElements)
  {
    const Body here = body;  // the compiler keeps a copy's numbers in registers: no store can change them
#pragma omp for collapse(2) schedule(static)
    for (std::int64_t n = 0; n < view.n; ++n)
      for (std::int64_t begin = 0; begin < view.spatial; begin += kPixels) {
        const std::int64_t end = std::min(view.spatial, begin + kPixels);
        for (std::int64_t s = begin; s < end; ++s) here(n, s);
        zero_padding(view, n, begin, end, dst);
      }
  }
}

template <int Below, int Above, class Powers, class T>
void forward_in_registers(const CrossMapNorm& p, const ActivationView& view, const Powers& powers_of,
                          const T* src, T* dst) {
  const float factor = p.scale / static_cast<float>(p.size), min_div = p.min_div;
  for_pixels(
      view, dst, [=](std::int64_t n, std::int64_t s) __attribute__((always_inline)) {
        Pixel<const T> in(src, view, n, s);
        Pixel<T> out(dst, view, n, s);
        Floats x = in.load(), before{}, squares = x * x;
        const auto block = [&](const Floats& next_x) __attribute__((always_inline)) {
          const Floats after = next_x * next_x;
          Floats powers;
          take_powers(powers_of, Floats(min_div + factor * window<Below, Above>(before, squares, after)),
                      powers);
          out.store(x * powers);
          x = next_x;
          before = squares;
          squares = after;
        };
        for (std::int64_t b = kChannels; b < view.padded_c; b += kChannels) block(in.load());
        block(Floats{});
      });
}

/// Does the same as backward(). The result of a block is computed once the ratios of the next block are
/// known.
template <int Below, int Above, class Powers, class T>
void backward_in_registers(const CrossMapNorm& p, const ActivationView& view, const Powers& powers_of,
                           const T* src, const T* diff_dst, T* diff_src) {
  const float factor = p.scale / static_cast<float>(p.size), min_div = p.min_div;
  const float slope = -2 * p.power * factor;
  for_pixels(
      view, diff_src, [=](std::int64_t n, std::int64_t s) __attribute__((always_inline)) {
        Pixel<const T> in(src, view, n, s), diff(diff_dst, view, n, s);
        Pixel<T> out(diff_src, view, n, s);
        struct Block {
          Floats x, scaled, ratios;
        };
        Floats x = in.load(), squares_before{}, squares = x * x;
        const auto next_block = [&](const Floats& next_x) __attribute__((always_inline)) {
          const Floats squares_after = next_x * next_x;
          Floats f, inverses;
          take_powers(powers_of,
                      Floats(min_div + factor * window<Below, Above>(squares_before, squares, squares_after)),
                      f, &inverses);
          const Floats scaled = diff.load() * f;
          const Block block{x, scaled, x == 0 ? Floats{} : scaled * x * inverses};
          x = next_x;
          squares_before = squares;
          squares = squares_after;
          return block;
        };
        const auto finish = [&](const Floats& ratios_before, const Block& block, const Floats& ratios_after)
            __attribute__((always_inline)) {
          out.store(block.scaled +
                    slope * block.x * window<Above, Below>(ratios_before, block.ratios, ratios_after));
        };
        const std::int64_t blocks = view.padded_c / kChannels;
        Floats ratios_before{};
        Block block = next_block(blocks > 1 ? in.load() : Floats{});
        for (std::int64_t b = 1; b < blocks; ++b) {
          const Block after = next_block(b + 1 < blocks ? in.load() : Floats{});
          finish(ratios_before, block, after.ratios);
          ratios_before = block.ratios;
          block = after;
        }
        finish(ratios_before, block, Floats{});
      });
}
#endif

/// Calls f(below, above), with constants, if windows can be summed in registers. Returns whether it did.
template <class F>
bool in_registers([[maybe_unused]] const CrossMapNorm& p, [[maybe_unused]] const ActivationView& view,
                  [[maybe_unused]] const F& f) {
#if defined(__AVX2__)
  if (p.blocked || view.block != kChannels) return false;
  const auto call = [&]<int Size>(std::integral_constant<int, Size>) {
    f(std::integral_constant<int, Size / 2>{}, std::integral_constant<int, Size - 1 - Size / 2>{});
    return true;
  };
  if (p.size == 3) return call(std::integral_constant<int, 3>{});
  if (p.size == 5) return call(std::integral_constant<int, 5>{});
  if (p.size == 9) return call(std::integral_constant<int, 9>{});
#endif
  return false;
}

ActivationView checked_view(const TensorDesc& tensor, const CrossMapNorm& p) {
  if (p.size < 1 || p.c < 1) throw std::logic_error("cmrnorm: no channels or an empty window");
  if (const auto view = activation_view(tensor)) return *view;
  throw DeviceError("cpu: cmrnorm of " + to_string(tensor.dims) + " cannot work in layout " +
                    tensor.layout_name());
}

/// Calls `visit` with the layout's block as an integral_constant, the power as a function, and a number of
/// the type that memory holds.
template <class Visitor>
void dispatch(const CrossMapNorm& p, std::int64_t block, DataType type, const Visitor& visit) {
  with_stored(type, [&]<class T>(T number) {
    with_negative_powers<T>(p.power, [&](const auto& powers_of) {
      switch (block) {
        case 16: return visit(std::integral_constant<int, 16>{}, powers_of, number);
        case 8: return visit(std::integral_constant<int, 8>{}, powers_of, number);
        case 4: return visit(std::integral_constant<int, 4>{}, powers_of, number);
        default: return visit(std::integral_constant<int, 1>{}, powers_of, number);
      }
    });
  });
}

}  // namespace

Prepared prepare(const CrossMapNormForward& op, const LayoutHints& hints) {
  const TensorDesc tensor = hinted_activation(op.p.dims(), hints, 0);
  const Tiling tiling = make_tiling(op.p, checked_view(tensor, op.p), 1);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor), [p = op.p, type = tensor.type, tiling](std::span<std::byte* const> args) {
        dispatch(p, tiling.view.block, type, [&]<class T>(auto block, const auto& powers_of, T) {
          const T* const src = as<const T>(args[0]);
          T* const dst = as<T>(args[1]);
          const bool done = in_registers(p, tiling.view, [&](auto below, auto above) {
            forward_in_registers<below(), above()>(p, tiling.view, powers_of, src, dst);
          });
          if (!done) forward<block()>(p, tiling, powers_of, src, dst);
        });
      });
}

Prepared prepare(const CrossMapNormBackward& op, const LayoutHints& hints) {
  const TensorDesc tensor = hinted_activation(op.p.dims(), hints, 0);
  const Tiling tiling = make_tiling(op.p, checked_view(tensor, op.p), 3);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor), [p = op.p, type = tensor.type, tiling](std::span<std::byte* const> args) {
        dispatch(p, tiling.view.block, type, [&]<class T>(auto block, const auto& powers_of, T) {
          const T *const src = as<const T>(args[0]), *const diff_dst = as<const T>(args[1]);
          T* const diff_src = as<T>(args[2]);
          const bool done = in_registers(p, tiling.view, [&](auto below, auto above) {
            backward_in_registers<below(), above()>(p, tiling.view, powers_of, src, diff_dst, diff_src);
          });
          if (!done) backward<block()>(p, tiling, powers_of, src, diff_dst, diff_src);
        });
      });
}

}  // namespace convnet::cpu::own
