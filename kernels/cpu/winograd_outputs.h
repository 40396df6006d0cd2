// Forward convolutions and gradients of inputs by Winograd's method. Only for files that are compiled with
// AVX-512, or with AVX2 and FMA.
#pragma once

#include <omp.h>

#include <type_traits>
#include <vector>

#include "kernels/cpu/moments.h"
#include "kernels/cpu/winograd_products.h"

namespace convnet::cpu::winograd {

/// The work on outputs before they are stored; see the fields of ConvForward.
struct Epilogue {
  bool accumulate = false, bias = false, sum = false, relu = false, moments = false;
};

/// Returns numbers as they are stored in type T.
template <class T>
[[gnu::always_inline]] inline Vec as_stored(Vec v) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    Vector<std::uint16_t, kLanes>::Type stored;
    narrow<kLanes>(v, stored);
    widen<kLanes>(stored, v);
  }
  return v;
}

/// Sums of the outputs of kLanes channels in a group of tiles, relative to a pivot. A group has so few
/// outputs that f32 is precise enough.
struct ChannelSums {
  Vec pivot{};  ///< the mean of the first tile with outputs
  Vec sum{}, squares{};

  /// Takes the pivot from the first tile with outputs, whose outputs are stored at `block`, and adds them.
  template <int Size, class T>
  void start(const Window<Size, T>& tile, const T* block) {
    float count = 0;
    for_pixels(tile, block, [&](const Vec& v) {
      pivot += v;
      ++count;
    });
    pivot /= count;
    for_pixels(tile, block, [&](const Vec& v) {
      sum += v - pivot;
      squares += (v - pivot) * (v - pivot);
    });
  }
  /// Writes the mean, and the sum of squares about it, of `count` outputs of each channel; zeros if it is 0.
  void finish(std::int64_t count, double* means, double* squares_about) const {
    if (count == 0) {
      std::fill(means, means + kLanes, 0);
      std::fill(squares_about, squares_about + kLanes, 0);
      return;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      const double offset = static_cast<double>(sum[lane]) / static_cast<double>(count);
      means[lane] = static_cast<double>(pivot[lane]) + offset;
      squares_about[lane] = static_cast<double>(squares[lane]) - offset * offset * static_cast<double>(count);
    }
  }

 private:
  template <int Size, class T, class F>
  static void for_pixels(const Window<Size, T>& tile, const T* block, const F& f) {
    for (int y = 0; y < Size; ++y)
      for (int x = 0; x < Size; ++x) {
        if (!tile.inside(y, x)) continue;
        Vec v;
        load_floats<kLanes>(block + tile.offset(y, x), kLanes, v);
        f(v);
      }
  }
};

/// Forward convolutions and gradients of inputs: outputs from transformed inputs and filters.
template <class Method, class T>
class Outputs : public PreparedOp {
 public:
  /// With `backward`, computes gradients of inputs. The filters are then those of the forward convolution,
  /// (I,O,H,W) in terms of this operation.
  Outputs(const Tiling<Method>& tiling, bool backward, const std::vector<TensorDesc>& args,
          const Epilogue& epilogue)
      : t_(tiling), backward_(backward), epilogue_(epilogue), threads_(omp_get_max_threads()) {
    // Every block of tiles reads all filters: the more of them, the larger the blocks.
    const std::int64_t most = shared_bytes() > kCacheBytes ? 192 : kTiles;
    const std::int64_t of_thread = (t_.tiles() + threads_ - 1) / threads_;
    tiles_ = std::min(most, (of_thread + kRowStep - 1) / kRowStep * kRowStep);
    args_ = args;
    algorithm_ = "winograd:own";
    workspace_bytes_ = shared_bytes() + moments_bytes() + threads_ * thread_bytes();
    if (!epilogue_.moments) return;
    for (std::int64_t group = 0; group < groups(); ++group) group_outputs_.push_back(outputs_in(group));
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const override {
    const T* const in = as<T>(pointers[0]);
    const float* const filters = as<float>(pointers[1]);
    std::size_t next = 2;
    Results results;
    if (epilogue_.bias) results.bias = as<float>(pointers[next++]);
    if (epilogue_.sum) results.addend = as<T>(pointers[next++]);
    results.out = as<T>(pointers[next++]);
    if (epilogue_.moments) results.means = as<double>(workspace + shared_bytes());
    Unit* const transformed = as<Unit>(workspace);  // [point][strip][input][column]
#pragma omp parallel num_threads(threads_)
    {
      const Memory memory = memory_of(workspace, omp_get_thread_num());
#pragma omp for schedule(static)
      for (std::int64_t o = 0; o < t_.out.c(); o += kLanes) transform_filters(filters, o, transformed);
#pragma omp for schedule(dynamic)
      for (std::int64_t block = 0; block < blocks(); ++block) {
        const std::int64_t first = block * tiles_, count = tiles_in(block);
        transform_inputs(in, first, count, memory.inputs);
        for (std::int64_t column = 0; column < t_.out.c(); column += kPanel) {
          multiply_panel(memory, transformed, column, count);
          transform_outputs(memory.products, column, block, results);
        }
      }
    }
    if (epilogue_.moments) {
      double *const means = results.means, *const squares = means + groups() * t_.out.c();
      merge_moments(
          groups(), t_.out.c(),
          [&](std::int64_t group) { return group_outputs_[static_cast<std::size_t>(group)]; }, means,
          squares);
      write_moments(t_.out.channels, t_.n * t_.out.h * t_.out.w, means, squares, as<float>(pointers[next]),
                    as<float>(pointers[next + 1]));
    }
  }

 private:
  static constexpr int kSide = Method::points, kPoints = kSide * kSide;
  static constexpr std::int64_t kDepth = Product<T>::depth;
  static constexpr std::int64_t kCacheBytes = std::int64_t{4} << 20;
  static constexpr int kMostVecs = kLanes == 16 ? 4 : 2;
  static constexpr std::int64_t kStrip = kMostVecs * kLanes;  ///< columns that one multiply() computes
  static constexpr std::int64_t kPanel = 64;  ///< columns whose products are in memory together

  /// A thread's part of the workspace.
  struct Memory {
    Unit* inputs;     ///< [point][tile][input]
    float* products;  ///< [point][tile][column of a panel]
  };
  /// The memory from which outputs are made and to which they are written; null for arguments that the
  /// operation does not have.
  struct Results {
    const float* bias = nullptr;
    const T* addend = nullptr;  ///< has the layout of `out`
    T* out = nullptr;
    double* means = nullptr;  ///< [group][output], followed by sums of squares about the means, likewise
  };
  std::int64_t blocks() const { return (t_.tiles() + tiles_ - 1) / tiles_; }
  std::int64_t tiles_in(std::int64_t block) const { return std::min(tiles_, t_.tiles() - block * tiles_); }
  /// Number of groups of kRowStep tiles. Moments are computed for each group, and do not depend on the number
  /// of threads.
  std::int64_t groups() const { return (t_.tiles() + kRowStep - 1) / kRowStep; }
  /// Number of outputs of a channel in a group of tiles, without those outside the image.
  std::int64_t outputs_in(std::int64_t group) const {
    std::int64_t count = 0;
    for (std::int64_t tile = group * kRowStep; tile < std::min(t_.tiles(), (group + 1) * kRowStep); ++tile)
      count += t_.template outputs<T>(tile).count();
    return count;
  }
  std::int64_t moments_bytes() const {
    return epilogue_.moments ? aligned(2 * groups() * t_.out.c() * std::int64_t{sizeof(double)}) : 0;
  }
  /// Return the number of columns of the panel, and of the strip, that begins at column `first`.
  std::int64_t panel_width(std::int64_t first) const { return std::min(kPanel, t_.out.c() - first); }
  std::int64_t strip_width(std::int64_t first) const { return std::min(kStrip, t_.out.c() - first); }
  std::int64_t in_units() const { return t_.in.c() / kDepth; }
  std::int64_t input_step() const { return point_step(tiles_ * in_units()); }
  std::int64_t product_step() const { return point_step(tiles_ * kPanel); }
  std::int64_t shared_bytes() const { return bytes_of(kPoints * in_units() * t_.out.c()); }
  std::int64_t input_bytes() const { return bytes_of(kPoints * input_step()); }
  std::int64_t thread_bytes() const { return input_bytes() + bytes_of(kPoints * product_step()); }
  Memory memory_of(std::byte* workspace, int thread) const {
    std::byte* const begin = workspace + shared_bytes() + moments_bytes() + thread * thread_bytes();
    return {as<Unit>(begin), as<float>(begin + input_bytes())};
  }

  /// The taps of kLanes filters: [tap][output].
  using Taps = std::array<std::array<float, kLanes>, std::size_t{Method::taps} * Method::taps>;
  /// Collects the taps of the filters from input `input` to kLanes outputs, rotated by 180 degrees if
  /// backward.
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

  /// Transforms the filters of kLanes outputs.
  void transform_filters(const float* filters, std::int64_t output, Unit* to) const {
    const std::int64_t strip = output / kStrip * kStrip, width = strip_width(strip);
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
      Unit* const first = to + strip * in_units() + unit * width + (output - strip);
      for (std::size_t p = 0; p < kPoints; ++p)
        Product<T>::store_units(first + static_cast<std::int64_t>(p) * in_units() * t_.out.c(), u[p]);
    }
  }

  /// Transforms the inputs of `count` tiles; rows up to the next multiple of kRowStep become zeros.
  void transform_inputs(const T* in, std::int64_t first, std::int64_t count, Unit* to) const {
    const std::int64_t step = input_step();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto window = t_.template inputs<const T>(first + i);
      const T* block = in;
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
    const std::int64_t depth = in_units(), width = panel_width(column);
    const std::int64_t rows = (count + kRowStep - 1) / kRowStep * kRowStep;
    for (std::int64_t p = 0; p < kPoints; ++p) {
      const Factor a{memory.inputs + p * input_step(), depth, 1};
      float* const products = memory.products + p * product_step();
      for (std::int64_t strip = 0; strip < width; strip += kStrip) {
        const Unit* const b = filters + (p * t_.out.c() + column + strip) * depth;
        const std::int64_t columns = strip_width(column + strip);
        with_vecs<kMostVecs>(columns, [&](auto vecs) {
          multiply_rows<T, kSums / vecs, vecs>(rows, a, b, columns, depth, false, products + strip, width);
        });
      }
    }
  }

  /// Transforms products to outputs, applies the epilogue, and stores the results.
  void transform_outputs(const float* products, std::int64_t column, std::int64_t block,
                         const Results& results) const {
    const auto transform_with = [&](auto sum) {
      const std::int64_t first = block * tiles_, last = first + tiles_in(block);
      for (std::int64_t tile = first; tile < last; tile += kRowStep) {
        const float* const from = products + (tile - first) * panel_width(column);
        const std::int64_t count = std::min(kRowStep, last - tile);
        if (epilogue_.moments)
          transform_group(from, column, tile, count, results, sum, std::true_type{});
        else
          transform_group(from, column, tile, count, results, sum, std::false_type{});
      }
    };
    if (epilogue_.sum)
      transform_with(std::true_type{});
    else
      transform_with(std::false_type{});
  }
  /// Does the same for the `count` tiles of a group, of which `tile` is the first.
  template <bool Sum, bool WithMoments>
  void transform_group(const float* products, std::int64_t column, std::int64_t tile, std::int64_t count,
                       const Results results, std::bool_constant<Sum>,
                       std::bool_constant<WithMoments>) const {
    const std::int64_t width = panel_width(column), step = product_step();
    const bool accumulate = epilogue_.accumulate, relu = epilogue_.relu;
    std::array<ChannelSums, kPanel / kLanes> sums;
    std::int64_t outputs = 0;  ///< of a channel so far, without those outside of all images
    for (std::int64_t i = 0; i < count; ++i) {
      const auto window = t_.template outputs<T>(tile + i);
      [[maybe_unused]] const bool first = WithMoments && outputs == 0;
      if constexpr (WithMoments) outputs += window.count();
      std::int64_t at = column / kLanes * t_.out.block();
      for (std::int64_t c = 0; c < width; c += kLanes, at += t_.out.block()) {
        const float* const from = products + i * width + c;
        T* const out = results.out + at;
        const T* const addend = Sum ? results.addend + at : nullptr;
        [[maybe_unused]] ChannelSums& channel_sums = sums[static_cast<std::size_t>(c / kLanes)];
        [[maybe_unused]] const Vec pivot = channel_sums.pivot;
        // Two partial sums of each hide the latency of additions.
        [[maybe_unused]] Line<2> sum{}, squares{};
        Vec bias{};
        if (results.bias != nullptr)
          load_floats<kLanes>(
              results.bias + column + c,
              static_cast<std::size_t>(std::min<std::int64_t>(kLanes, t_.out.channels - column - c)), bias);
        transform<kSide, Method::outputs>(
            [&](int y, int x) __attribute__((always_inline)) {
              Vec v;
              load(from + (y * kSide + x) * step, v);
              return v;
            },
            Method::output,
            [&](int y, int x, Vec v) __attribute__((always_inline)) {
              if (!window.inside(y, x)) return;
              const std::int64_t pixel = window.offset(y, x), next = pixel + Method::outputs * kLanes;
              v += bias;
              Vec more;
              if (accumulate) {
                load_floats<kLanes>(out + pixel, kLanes, more);
                v += more;
              }
              if constexpr (Sum) {
                load_floats<kLanes>(addend + pixel, kLanes, more);
                __builtin_prefetch(addend + next);  // the next tile's
                v += more;
              }
              if (relu) v = (v < Vec{}) ? Vec{} : v;  // NaN stays
              store_floats<kLanes>(out + pixel, kLanes, v);
              __builtin_prefetch(out + next, 1);
              if constexpr (WithMoments) {
                v = as_stored<T>(v);
                v -= pivot;
                sum[x % 2] += v;
                squares[x % 2] += v * v;
              }
            });
        if constexpr (WithMoments) {
          if (first && outputs > 0) {
            channel_sums.start(window, out);
          } else {
            channel_sums.sum += sum[0] + sum[1];
            channel_sums.squares += squares[0] + squares[1];
          }
        }
      }
    }
    if constexpr (WithMoments) {
      const std::int64_t group = tile / kRowStep;
      double *const means = results.means + group * t_.out.c() + column, *const squares =
                                                                             means + groups() * t_.out.c();
      for (std::int64_t c = 0; c < width; c += kLanes)
        sums[static_cast<std::size_t>(c / kLanes)].finish(outputs, means + c, squares + c);
    }
  }

  const Tiling<Method> t_;
  const bool backward_;
  const Epilogue epilogue_;
  const int threads_;
  std::int64_t tiles_ = 0;                   ///< number of tiles in a block, which are transformed at a time
  std::vector<std::int64_t> group_outputs_;  ///< outputs_in() of each group, if there are moments
};

}  // namespace convnet::cpu::winograd
