// Depthwise convolutions with filters of 3x3 and 5x5, and the gradients of their inputs. oneDNN 2.6 reads the
// same layouts, but takes up to 1.5 times as long forward and 5 times as long backward.
#include <memory>
#include <utility>

#include "kernels/cpu/depthwise.h"

namespace convnet::cpu::own {
namespace {

constexpr int kMaps = kDepthwiseMaps;
using Maps = Vector<float, kMaps>::Type;

/// Some outputs along one side, and what they see: output first + k * step of the written image, for k <
/// count, is the sum over i < taps of input origin + k * stride + i times tap `tap` + i * tap_step of the
/// filter. Inputs outside of the image are zeros.
struct Phase {
  std::int64_t first, count, origin, taps, tap, tap_step;
};

// Where registers are too narrow for these kernels, nothing calls these two.
/// Returns the only phase of a forward pass.
[[maybe_unused]] std::vector<Phase> forward_phases(std::int64_t filter, std::int64_t pad,
                                                   std::int64_t outputs) {
  return {{0, outputs, -pad, filter, 0, 1}};
}
/// Returns the phases of a gradient: pixels `first`, `first` + stride, ... see the same taps, in the opposite
/// order.
[[maybe_unused]] std::vector<Phase> backward_phases(std::int64_t filter, std::int64_t stride,
                                                    std::int64_t pad, std::int64_t pixels) {
  std::vector<Phase> phases;
  for (std::int64_t first = 0; first < std::min(stride, pixels); ++first) {
    const std::int64_t nearest = (first + pad) % stride, taps = (filter - nearest + stride - 1) / stride;
    phases.push_back({first, (pixels - first + stride - 1) / stride,
                      (first + pad - nearest) / stride - (taps - 1), taps, nearest + stride * (taps - 1),
                      -stride});
  }
  return phases;
}

/// The phases of one side, and the inputs that output k of all of them sees together: `reach` from `origin` +
/// k * stride on.
struct Side {
  std::vector<Phase> phases;
  std::int64_t outputs = 0, inputs = 0;  ///< pixels of the written and of the read image
  std::int64_t count = 0, origin = 0, reach = 0;

  Side(std::vector<Phase> all, std::int64_t written, std::int64_t read)
      : phases(std::move(all)), outputs(written), inputs(read) {
    if (phases.empty()) return;
    origin = phases[0].origin;
    for (const Phase& p : phases) origin = std::min(origin, p.origin);
    for (const Phase& p : phases) {
      count = std::max(count, p.count);
      reach = std::max(reach, p.origin + p.taps - origin);
    }
  }
};

/// `Filter` is the side of a filter, `Stride` the distance of windows in the read image, `Step` that of the
/// outputs of a phase.
template <int Filter, int Stride, int Step, class T>
class DepthwiseOutputs : public PreparedOp {
 public:
  DepthwiseOutputs(std::int64_t images, std::int64_t maps, Side rows, Side columns, bool bias, bool relu,
                   const std::vector<TensorDesc>& args)
      : images_(images),
        maps_(maps),
        blocks_((maps + kMaps - 1) / kMaps),
        rows_(std::move(rows)),
        columns_(std::move(columns)),
        bias_(bias),
        relu_(relu),
        width_((columns_.count - 1) * Stride + columns_.reach) {
    args_ = args;
    algorithm_ = "depthwise:own";
    const std::int64_t line = width_ * kMaps * static_cast<std::int64_t>(sizeof(float));
    band_ = std::clamp<std::int64_t>((Band::kBytes / line - rows_.reach) / Stride + 1, 1, rows_.count);
  }

  void run(std::span<std::byte* const> pointers, std::byte*, Queue*) const override {
    const T* const src = as<T>(pointers[0]);
    const float* const weights = as<float>(pointers[1]);
    const float* const biases = bias_ ? as<float>(pointers[2]) : nullptr;
    T* const dst = as<T>(pointers.back());
#pragma omp parallel
    {
      Band band(lines(band_), columns_.origin, width_);
#pragma omp for collapse(2) schedule(static)
      for (std::int64_t n = 0; n < images_; ++n)
        for (std::int64_t block = 0; block < blocks_; ++block) {
          const std::int64_t plane = n * blocks_ + block;
          compute(src + plane * rows_.inputs * columns_.inputs * kMaps, filter_of(block, weights),
                  bias_of(block, biases), band, dst + plane * rows_.outputs * columns_.outputs * kMaps);
        }
    }
  }

 private:
  /// The taps of a block of maps, by phases of rows and of columns, in the order in which a phase sees them.
  struct Taps {
    std::array<Maps, std::size_t{Filter} * Filter> taps;
  };

  std::int64_t lines(std::int64_t rows) const { return (rows - 1) * Stride + rows_.reach; }

  Taps filter_of(std::int64_t block, const float* weights) const {
    Taps filter;
    std::size_t at = 0;
    for (const Phase& rows : rows_.phases)
      for (const Phase& columns : columns_.phases)
        for (std::int64_t y = 0; y < rows.taps; ++y)
          for (std::int64_t x = 0; x < columns.taps; ++x) {
            const std::int64_t tap =
                (rows.tap + y * rows.tap_step) * Filter + columns.tap + x * columns.tap_step;
            Maps& factors = filter.taps[at++];
            load(weights + (block * Filter * Filter + tap) * kMaps, factors);
            if constexpr (!std::is_same_v<T, float>) {  // factors are numbers of that type
              typename Vector<std::uint16_t, kMaps>::Type rounded;
              narrow<kMaps>(factors, rounded);
              widen<kMaps>(rounded, factors);
            }
          }
    return filter;
  }
  Maps bias_of(std::int64_t block, const float* biases) const {
    Maps bias{};
    if (biases != nullptr)
      load_floats<kMaps>(biases + block * kMaps,
                         static_cast<std::size_t>(std::min<std::int64_t>(kMaps, maps_ - block * kMaps)),
                         bias);
    return bias;
  }

  /// Computes a block of maps of an image.
  void compute(const T* src, const Taps& filter, const Maps& bias, Band& band, T* dst) const {
    for (std::int64_t y = 0; y < rows_.count; y += band_) {
      const std::int64_t count = std::min(band_, rows_.count - y);
      band.fill(src, rows_.inputs, columns_.inputs, rows_.origin + y * Stride, lines(count));
      const Maps* taps = filter.taps.data();
      for (const Phase& rows : rows_.phases)
        for (const Phase& columns : columns_.phases) {
          const float* from =
              band.data() +
              ((rows.origin - rows_.origin) * width_ + columns.origin - columns_.origin) * kMaps;
          T* to = dst + ((rows.first + y * Step) * columns_.outputs + columns.first) * kMaps;
          const std::int64_t here = std::min(count, rows.count - y);
          with_taps(rows.taps, [&](auto high) {
            with_taps(columns.taps, [&](auto wide) {
              for (std::int64_t row = 0; row < here; ++row) {
                if (taps == filter.taps.data()) fetch_row(src, y + band_ + row);
                compute_row<high(), wide()>(from + row * Stride * width_ * kMaps, taps, bias, columns.count,
                                            to + row * Step * columns_.outputs * kMaps);
              }
            });
          });
          taps += rows.taps * columns.taps;
        }
    }
  }

  /// Fetches what the row has to itself of a row of outputs, which may be one of the next image.
  void fetch_row(const T* src, std::int64_t row) const {
    const std::int64_t line = columns_.inputs * kMaps;
    prefetch(src + row * Stride * line, Stride * line);
  }

  /// Calls f with the taps of a phase as a constant.
  template <class F>
  static void with_taps(std::int64_t taps, const F& f) {
    if constexpr (Step == 1) {
      f(std::integral_constant<int, Filter>{});
    } else if (taps == Filter / 2) {
      f(std::integral_constant<int, Filter / 2>{});
    } else {
      f(std::integral_constant<int, Filter / 2 + 1>{});
    }
  }

  template <int High, int Wide>
  void compute_row(const float* band, const Maps* taps, const Maps& bias, std::int64_t count, T* dst) const {
    const auto outputs = [&]<int... At>(std::int64_t x, std::integer_sequence<int, At...>) {
      std::array<Maps, sizeof...(At)> sums = {((void)At, bias)...};
      const float* from = band + x * Stride * kMaps;
      const Maps* factors = taps;
      for (int row = 0; row < High; ++row, from += width_ * kMaps) {
        const auto add = [&](int column) __attribute__((always_inline)) {
          const Maps factor = *factors++;
          Maps pixel;
          ((load(from + (std::int64_t{At} * Stride + column) * kMaps, pixel), sums[At] += factor * pixel),
           ...);
        };
        add(0);
        if constexpr (Wide > 1) add(1);
        if constexpr (Wide > 2) add(2);
        if constexpr (Wide > 3) add(3);
        if constexpr (Wide > 4) add(4);
      }
      (put(sums[At], dst + (x + At) * Step * kMaps), ...);
    };
    // Sides of images are often multiples of seven.
    std::int64_t x = 0;
    for (; x + 7 <= count; x += 7) outputs(x, std::make_integer_sequence<int, 7>{});
    for (; x + 4 <= count; x += 4) outputs(x, std::make_integer_sequence<int, 4>{});
    for (; x < count; ++x) outputs(x, std::make_integer_sequence<int, 1>{});
  }
  [[gnu::always_inline]] void put(Maps sum, T* to) const {
    if (relu_) sum = sum < 0 ? Maps{} : sum;  // keeps NaN
    store_floats<kMaps>(to, kMaps, sum);
  }

  const std::int64_t images_, maps_, blocks_;
  const Side rows_, columns_;
  const bool bias_, relu_;
  const std::int64_t width_;  ///< columns of a band
  std::int64_t band_ = 1;     ///< rows of outputs of a phase that a band is for
};

/// Returns make(filter, stride, T{}) with constants for the geometry and the type T in which numbers are
/// stored. Returns null for other geometries, and where the library is as fast: on processors with SSE only,
/// and for bf16 with AVX-512, where it has products of bf16 numbers.
template <int Filter, class Make>
Prepared with_geometry(const ConvGeometry& g, DataType type, const Make& make) {
  Prepared made;
  if constexpr (kRegisterBytes >= 32) {
    if (!is_depthwise(g) || g.filter.x != Filter || g.n * g.h * g.w * g.oh * g.ow == 0) return nullptr;
    const auto with_stride = [&](auto stored) {
      constexpr std::integral_constant<int, Filter> filter;
      if (g.stride.x == 1) made = make(filter, std::integral_constant<int, 1>{}, stored);
      if (g.stride.x == 2) made = make(filter, std::integral_constant<int, 2>{}, stored);
    };
    if (type == DataType::f32) with_stride(float{});
    if constexpr (kRegisterBytes < 64) {
      if (type == DataType::bf16) with_stride(BFloat16{});
    }
  }
  return made;
}

}  // namespace

Prepared prepare_depthwise(const ConvForward& op, DataType type) {
  const ConvGeometry& g = op.g;
  if (op.accumulate || is_fused(op)) return nullptr;
  const auto make = [&]<class T, int Filter, int Stride>(std::integral_constant<int, Filter>,
                                                         std::integral_constant<int, Stride>, T) -> Prepared {
    std::vector<TensorDesc> args = {blocked_activations(g.src(), kMaps, type), depthwise_weights(g)};
    if (op.bias) args.push_back({{g.k}, DataType::f32, nullptr});
    args.push_back(blocked_activations(g.dst(), kMaps, type));
    return std::make_shared<DepthwiseOutputs<Filter, Stride, 1, T>>(
        g.n, g.c, Side(forward_phases(Filter, g.pad.y, g.oh), g.oh, g.h),
        Side(forward_phases(Filter, g.pad.x, g.ow), g.ow, g.w), op.bias, op.relu, args);
  };
  if (g.filter.x == 3 && g.stride.x != 1 && type == DataType::f32) return nullptr;  // oneDNN's is as fast
  if (Prepared small = with_geometry<3>(g, type, make)) return small;
  return with_geometry<5>(g, type, make);
}

Prepared prepare_depthwise(const ConvBackwardData& op, DataType type) {
  const ConvGeometry& g = op.g;
  if (is_fused(op)) return nullptr;
  const auto make = [&]<class T, int Filter, int Stride>(std::integral_constant<int, Filter>,
                                                         std::integral_constant<int, Stride>, T) -> Prepared {
    return std::make_shared<DepthwiseOutputs<Filter, 1, Stride, T>>(
        g.n, g.c, Side(backward_phases(Filter, Stride, g.pad.y, g.h), g.h, g.oh),
        Side(backward_phases(Filter, Stride, g.pad.x, g.w), g.w, g.ow), false, false,
        std::vector<TensorDesc>{blocked_activations(g.dst(), kMaps, type), depthwise_weights(g),
                                blocked_activations(g.src(), kMaps, type)});
  };
  if (Prepared small = with_geometry<3>(g, type, make)) return small;
  return with_geometry<5>(g, type, make);
}

}  // namespace convnet::cpu::own
