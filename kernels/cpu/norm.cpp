// Cross-map response normalisation. oneDNN's is limited to odd windows and one power, and keeps a workspace
// twice the size of the tensor.
#include <array>
#include <cstring>
#include <stdexcept>
#include <tuple>
#include <type_traits>

#include "convnet/base/error.h"
#include "kernels/cpu/interleave.h"
#include "kernels/cpu/own_kernel.h"
#include "kernels/cpu/power.h"

namespace convnet::cpu::own {
namespace {

/// A tile is all channels of some neighbouring pixels of one image. Its values in scratch memory are
/// [pixel][channel] for blocked layouts and [channel][pixel] for plain ones, so that in both a run of the
/// tensor's memory is a run of scratch. `halo` zeros around the channels stand for the maps outside [0,C).
struct Tiling {
  ActivationView view;
  std::int64_t below = 0, above = 0;  ///< window(c) = [c - below, c + above], unless grouped
  std::int64_t group = 0;             ///< > 0: windows are the aligned groups of this many channels
  std::int64_t halo = 0;
  std::int64_t pixels = 0;                        ///< of a tile
  std::int64_t channel_step = 1, pixel_step = 1;  ///< in scratch
  std::int64_t scratch_floats = 0;

  std::int64_t tiles() const { return (view.spatial + pixels - 1) / pixels; }
};

constexpr std::int64_t kPlainLanes = 16;  // pixels worked on together in plain layouts

Tiling make_tiling(const CrossMapNorm& p, const ActivationView& view) {
  Tiling t;
  t.view = view;
  if (p.blocked) {
    t.group = p.size;
  } else {
    t.below = std::min(p.size / 2, p.c - 1);
    t.above = std::min(p.size - 1 - p.size / 2, p.c - 1);
  }
  t.halo = std::max(t.below, t.above);
  const std::int64_t line = view.padded_c + 2 * t.halo;
  constexpr std::int64_t kScratchFloats = 4096;  // stays in the first-level cache
  t.pixels = std::clamp<std::int64_t>(kScratchFloats / line, 1, 64);
  if (view.block == 1) {
    t.pixels = (t.pixels + kPlainLanes - 1) / kPlainLanes * kPlainLanes;
    t.channel_step = t.pixels;
  } else {
    t.pixel_step = line;
  }
  t.scratch_floats = line * t.pixels;
  return t;
}

/// The values of a run: neighbouring pixels of one channel in plain layouts, else the channels of one block
/// and pixel. Loops over them have a constant length and vectorise.
template <int Block>
using Values = std::array<float, Block == 1 ? kPlainLanes : Block>;

struct Run {
  std::int64_t memory;   ///< offset in the tensor
  std::int64_t scratch;  ///< and in scratch
  std::int64_t channel;  ///< of the first value
  std::int64_t count;    ///< of values in the tensor; the others are zero and not stored
};

/// Calls f(lanes) with the number of a run's values; where it has all, that is a constant.
template <std::size_t Lanes, class F>
[[gnu::always_inline]] inline void with_lanes(const Run& run, const F& f) {
  if (run.count == std::int64_t{Lanes})
    f(std::integral_constant<std::size_t, Lanes>{});
  else
    f(static_cast<std::size_t>(run.count));
}

template <int Block, class T>
[[gnu::always_inline]] inline Values<Block> load(const T* tensor, const Run& run) {
  constexpr std::size_t kLanes = std::tuple_size_v<Values<Block>>;
  typename Vector<float, kLanes>::Type v;
  with_lanes<kLanes>(run, [&](auto lanes) { load_floats<kLanes>(tensor + run.memory, lanes, v); });
  Values<Block> values;
  std::memcpy(values.data(), &v, sizeof values);
  return values;
}

template <std::size_t Lanes, class T>
[[gnu::always_inline]] inline void store(const std::array<float, Lanes>& values, const Run& run, T* tensor) {
  typename Vector<float, Lanes>::Type v;
  std::memcpy(&v, values.data(), sizeof v);
  with_lanes<Lanes>(run, [&](auto lanes) { store_floats<Lanes>(tensor + run.memory, lanes, v); });
}

/// Calls body(run) for all runs of pixels [begin, end) of image n.
template <int Block, class Body>
void for_runs(const Tiling& t, std::int64_t n, std::int64_t begin, std::int64_t end, const Body& body) {
  constexpr std::int64_t kPixels = Block == 1 ? kPlainLanes : 1;
  for (std::int64_t c = 0; c < t.view.padded_c; c += Block) {
    const std::int64_t memory = (n * t.view.padded_c + c) * t.view.spatial;
    const std::int64_t scratch = (t.halo + c) * t.channel_step;
    for (std::int64_t s = begin; s < end; s += kPixels)
      body(Run{memory + s * Block, scratch + (s - begin) * t.pixel_step, c,
               Block == 1 ? std::min(kPixels, end - s) : Block});
  }
}

/// Sums of the scratch array `values` over the aligned group of each channel of a run.
template <int Block>
[[gnu::noinline]] Values<Block> group_sums(const Tiling& t, const Run& run, const float* values) {
  Values<Block> sums{};
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
[[gnu::always_inline]] inline Values<Block> window_sums(const Tiling& t, const Run& run, std::int64_t below,
                                                        std::int64_t above, const float* values) {
  if (t.group > 0) return group_sums<Block>(t, run, values);
  Values<Block> sums{};
  for (std::int64_t i = -below; i <= above; ++i) {
    const float* row = values + run.scratch + i * t.channel_step;
#pragma omp simd
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += row[j];
  }
  return sums;
}

/// Writes the squares of a tile's values to scratch.
template <int Block, class T>
void square(const Tiling& t, std::int64_t n, std::int64_t begin, std::int64_t end, const T* src,
            float* squares) {
  for_runs<Block>(t, n, begin, end, [=](const Run& run) {
    const Values<Block> x = load<Block>(src, run);
#pragma omp simd
    for (std::size_t j = 0; j < x.size(); ++j)
      squares[run.scratch + static_cast<std::int64_t>(j)] = x[j] * x[j];
  });
}

/// Calls body(n, first pixel, end, scratch) for each tile, in parallel; scratch has room for `arrays` arrays,
/// with zeros in their halos.
template <class Body>
void for_tiles(const Tiling& t, std::int64_t arrays, const Body& body) {
#pragma omp parallel if (t.view.size() >= kParallelElements)
  {
    std::vector<float> scratch(static_cast<std::size_t>(arrays * t.scratch_floats));
#pragma omp for collapse(2) schedule(static)
    for (std::int64_t n = 0; n < t.view.n; ++n)
      for (std::int64_t tile = 0; tile < t.tiles(); ++tile)
        body(n, tile * t.pixels, std::min(t.view.spatial, (tile + 1) * t.pixels), scratch.data());
  }
}

template <int Block, class Power, class T>
void forward(const CrossMapNorm& p, const Tiling& t, const Power& negative_power, const T* src, T* dst) {
  const float factor = p.scale / static_cast<float>(p.size);
  for_tiles(t, 1, [=, &t](std::int64_t n, std::int64_t begin, std::int64_t end, float* squares) {
    square<Block>(t, n, begin, end, src, squares);
    for_runs<Block>(t, n, begin, end, [=, &t](const Run& run) {
      Values<Block> y = load<Block>(src, run);
      const Values<Block> sums = window_sums<Block>(t, run, t.below, t.above, squares);
#pragma omp simd
      for (std::size_t j = 0; j < y.size(); ++j) y[j] *= negative_power(p.min_div + factor * sums[j]);
      store(y, run, dst);
    });
    zero_padding(t.view, n, begin, end, dst);
  });
}

/// With the denominators d and f = d^-power:
/// dx_i = dy_i f_i - 2 power scale/size x_i sum over {c: i in window(c)} of dy_c x_c f_c / d_c
template <int Block, class Power, class T>
void backward(const CrossMapNorm& p, const Tiling& t, const Power& negative_power, const T* src,
              const T* diff_dst, T* diff_src) {
  const float factor = p.scale / static_cast<float>(p.size);
  const float slope = -2 * p.power * factor;
  for_tiles(t, 3, [=, &t](std::int64_t n, std::int64_t begin, std::int64_t end, float* squares) {
    float* ratios = squares + t.scratch_floats;
    float* powers = ratios + t.scratch_floats;
    square<Block>(t, n, begin, end, src, squares);
    for_runs<Block>(t, n, begin, end, [=, &t](const Run& run) {
      const Values<Block> x = load<Block>(src, run);
      const Values<Block> dy = load<Block>(diff_dst, run);
      const Values<Block> sums = window_sums<Block>(t, run, t.below, t.above, squares);
      float* ratio = ratios + run.scratch;
      float* f = powers + run.scratch;
#pragma omp simd
      for (std::size_t j = 0; j < x.size(); ++j) {
        const float d = p.min_div + factor * sums[j];
        f[j] = negative_power(d);
        // Padding may have d = 0; its neighbours must not see the NaN.
        ratio[j] = x[j] == 0 ? 0 : dy[j] * x[j] * f[j] / d;
      }
    });
    for_runs<Block>(t, n, begin, end, [=, &t](const Run& run) {
      const Values<Block> x = load<Block>(src, run);
      Values<Block> dx = load<Block>(diff_dst, run);
      // The maps whose windows hold i reach as far up as windows reach down.
      const Values<Block> sums = window_sums<Block>(t, run, t.above, t.below, ratios);
      const float* f = powers + run.scratch;
#pragma omp simd
      for (std::size_t j = 0; j < x.size(); ++j) dx[j] = dx[j] * f[j] + slope * x[j] * sums[j];
      store(dx, run, diff_src);
    });
    zero_padding(t.view, n, begin, end, diff_src);
  });
}

ActivationView checked_view(const TensorDesc& tensor, const CrossMapNorm& p) {
  if (p.size < 1 || p.c < 1) throw std::logic_error("cmrnorm: no channels or an empty window");
  if (const auto view = activation_view(tensor)) return *view;
  throw DeviceError("cpu: cmrnorm of " + to_string(tensor.dims) + " cannot work in layout " +
                    tensor.layout_name());
}

/// Calls `visit` with the layout's block as an integral_constant, and the power as a function.
template <class Visitor>
void dispatch(const CrossMapNorm& p, std::int64_t block, const Visitor& visit) {
  with_negative_power(p.power, [&](const auto& negative_power) {
    switch (block) {
      case 16: return visit(std::integral_constant<int, 16>{}, negative_power);
      case 8: return visit(std::integral_constant<int, 8>{}, negative_power);
      case 4: return visit(std::integral_constant<int, 4>{}, negative_power);
      default: return visit(std::integral_constant<int, 1>{}, negative_power);
    }
  });
}

}  // namespace

Prepared prepare(const CrossMapNormForward& op, const LayoutHints& hints) {
  const TensorDesc tensor = hinted_activation(op.p.dims(), hints, 0);
  const Tiling tiling = make_tiling(op.p, checked_view(tensor, op.p));
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor), [p = op.p, type = tensor.type, tiling](std::span<std::byte* const> args) {
        dispatch(p, tiling.view.block, [&](auto block, const auto& negative_power) {
          with_stored(type, [&]<class T>(T) {
            forward<block()>(p, tiling, negative_power, as<const T>(args[0]), as<T>(args[1]));
          });
        });
      });
}

Prepared prepare(const CrossMapNormBackward& op, const LayoutHints& hints) {
  const TensorDesc tensor = hinted_activation(op.p.dims(), hints, 0);
  const Tiling tiling = make_tiling(op.p, checked_view(tensor, op.p));
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor), [p = op.p, type = tensor.type, tiling](std::span<std::byte* const> args) {
        dispatch(p, tiling.view.block, [&](auto block, const auto& negative_power) {
          with_stored(type, [&]<class T>(T) {
            backward<block()>(p, tiling, negative_power, as<const T>(args[0]), as<const T>(args[1]),
                              as<T>(args[2]));
          });
        });
      });
}

}  // namespace convnet::cpu::own
