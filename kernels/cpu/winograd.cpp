// Convolutions by Winograd's method (winograd_transforms.h): 3x3 with stride 1 and 2, and 5x5. Tiles of the
// input and the filters are transformed. For each point of a transformed tile, a matrix product sums over
// channels for all tiles. Transforms are made in f32; for products of bf16 numbers they are rounded once.
// Sums are f32.
#include "kernels/cpu/own_kernels.h"

#if defined(__AVX2__) && defined(__FMA__)

#include <omp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "kernels/cpu/winograd_outputs.h"

namespace convnet::cpu::own {
namespace {

using namespace winograd;

/// Computes gradients of filters. Several threads transform a block of tiles each; then the products of the
/// blocks are added, for each point in the order of the blocks, so that sums do not depend on the number of
/// threads. Each thread adds to the same sums for all blocks, so that they stay in its core's caches.
template <class Method, class T>
class FilterGradients : public PreparedOp {
 public:
  FilterGradients(const Tiling<Method>& tiling, const std::vector<TensorDesc>& args, bool bias)
      : t_(tiling),
        bias_(bias),
        threads_(omp_get_max_threads()),
        tiles_(sum_bytes() > kFewSums ? 384 : kTiles) {
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
#pragma omp for schedule(static)
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
  static constexpr int kMostVecs = kLanes == 16 ? 4 : 3;
  static constexpr std::int64_t kStrip = kMostVecs * kLanes;  ///< columns that one multiply() computes
  /// Columns of sums that a thread takes: whole cache lines, which two threads that write would fight for.
  static constexpr std::int64_t kPanel = kLanes == 16 ? kStrip : 2 * kStrip;
  static_assert(kPanel * sizeof(float) % 64 == 0);
  static constexpr std::int64_t kCacheBytes = std::int64_t{3} << 18;
  /// With more bytes of sums than this, blocks are larger, so that the sums are read and written less often.
  static constexpr std::int64_t kFewSums = std::int64_t{8} << 20;

  /// The part of the workspace for one block of tiles. A unit holds the values of kDepth tiles.
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

  /// The tiles of a unit, of inputs or of gradients. Tiles past the last one are zeros.
  template <int Size>
  using UnitTiles = std::array<Window<Size, const T>, kDepth>;
  template <int Size, class WindowOf>
  UnitTiles<Size> tiles_of(std::int64_t tile, const WindowOf& window) const {
    UnitTiles<Size> tiles;
    for (std::size_t part = 0; part < kDepth; ++part, ++tile)
      if (tile < t_.tiles()) tiles[part] = window(tile);
    return tiles;
  }

  void transform_inputs(const T* in, std::int64_t tile, Unit* to) const {
    const auto tiles =
        tiles_of<Method::inputs>(tile, [&](std::int64_t at) { return t_.template inputs<const T>(at); });
    const std::int64_t step = input_step();
    for (std::int64_t c = 0; c < t_.in.c(); c += kLanes) {
      std::array<std::array<Vec, kDepth>, kPoints> v;
      unrolled<kDepth>([&](auto part) __attribute__((always_inline)) {
        const T* const block = in + c / kLanes * t_.in.block();
        transform<Method::inputs, kSide>(
            [&](int y, int x) __attribute__((always_inline)) { return tiles[part].load(block, y, x); },
            Method::input,
            [&](int y, int x, Vec value)
                __attribute__((always_inline)) { v[index_of(y * kSide + x)][part] = value; });
      });
      unrolled<kPoints>([&](auto p) __attribute__((always_inline)) {
        Product<T>::store_units(to + p * step + c, v[p]);
      });
    }
  }
  /// Transforms gradients, and adds them to the gradients of the biases.
  void transform_gradients(const T* gradients, std::int64_t tile, Unit* to, float* bias) const {
    const auto tiles =
        tiles_of<kOutputs>(tile, [&](std::int64_t at) { return t_.template outputs<const T>(at); });
    const std::int64_t step = gradient_step();
    for (std::int64_t c = 0; c < t_.out.c(); c += kLanes) {
      std::array<std::array<Vec, kDepth>, kPoints> v;
      Vec sum;
      load(bias + c, sum);
      unrolled<kDepth>([&](auto part) __attribute__((always_inline)) {
        const T* const block = gradients + c / kLanes * t_.out.block();
        transform<kOutputs, kSide>(
            [&](int y, int x) __attribute__((always_inline)) {
              const Vec value = tiles[part].load(block, y, x);
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
    const std::int64_t end = std::min(column + kPanel, t_.out.c());
    for (; column < end; column += kStrip) multiply_strip(memory, point, column, depth, add, sums);
  }
  void multiply_strip(const Memory& memory, std::int64_t point, std::int64_t column, std::int64_t depth,
                      bool add, float* sums) const {
    const std::int64_t inputs = t_.in.c(), outputs = t_.out.c();
    const Factor a{memory.inputs + point * input_step(), 1, inputs};
    const Unit* const b = memory.gradients + point * gradient_step() + column;
    float* const to = sums + point * inputs * outputs + column;
    with_vecs<kMostVecs>(std::min(kStrip, outputs - column), [&](auto vecs) {
      constexpr int rows = std::bit_floor(unsigned{kSums / vecs});  // divides `inputs`
      multiply_rows<T, rows, vecs>(inputs, a, b, outputs, depth, add, to, outputs);
    });
  }

  /// Writes the gradients of the filters from input `c` to kLanes outputs.
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
  const std::int64_t tiles_;   ///< number of tiles of a block
  std::int64_t together_ = 0;  ///< blocks that are transformed before their products are added
};

/// The conditions under which a method was measured to be faster than the library.
struct Range {
  double least_used = 0;  ///< fraction of the computed outputs that exist; tiles may hang over the border
  /// Input channels times output channels, with those of padding.
  std::int64_t least_filters = 0, most_filters = std::int64_t{1} << 62;
  std::int64_t least_tiles = 0;  ///< with fewer, the transforms of many filters take too long
};
constexpr std::int64_t kLeastChannels = 8;  ///< on either side
/// Returns whether a convolution meets the conditions. `M` is Method, or Method::Backward for gradients of
/// inputs.
template <class Method, class M>
bool pays(const ConvGeometry& g, const Tiling<M>& t, const Range& range) {
  if (g.n == 0 || !g.square() || g.groups != 1) return false;
  if (g.filter.x != Method::taps || g.stride.x != Method::stride) return false;
  if (Method::stride > 1 && g.pad.x != 1) return false;  // a condition of Strided2x3Backward
  return t.used() >= range.least_used && t.in.c() * t.out.c() >= range.least_filters &&
         t.in.c() * t.out.c() <= range.most_filters && g.c >= kLeastChannels && g.k >= kLeastChannels &&
         t.tiles() >= range.least_tiles;
}

enum class Pass { forward, backward_data, backward_weights };

/// Returns f(Method{}, number, tiling) for the method that computes a pass of a convolution faster than the
/// library; null if none does.
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
    // With AVX-512 the library computes more filters by Winograd's method, too.
    constexpr bool wide = kLanes == 16;
    found = tried(F4x3{}, float{}, wide ? Range{0.5, 512, 100'000} : Range{0.5, 256, 50'000});
    if (!found && !wide) found = tried(F4x3{}, float{}, {0.5, 50'000, Range{}.most_filters, 48});
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

/// Returns the arguments: activations of `type` in blocks of kLanes channels, everything else plain.
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
        return std::make_shared<Outputs<Method, T>>(tiling, false, tensors_of(op, type),
                                                    Epilogue{.accumulate = op.accumulate,
                                                             .bias = op.bias,
                                                             .sum = op.sum,
                                                             .relu = op.relu,
                                                             .moments = op.moments});
      });
}
Prepared prepare_winograd(const ConvBackwardData& op, DataType type) {
  return with_method<Pass::backward_data>(
      op.g, type, [&]<class Method, class T>(Method, T, const auto& tiling) -> Prepared {
        return std::make_shared<Outputs<typename Method::Backward, T>>(tiling, true, tensors_of(op, type),
                                                                       Epilogue{.sum = op.sum});
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
