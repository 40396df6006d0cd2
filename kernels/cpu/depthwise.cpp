// Gradients of the filters of depthwise convolutions, whose groups have one map each. oneDNN 2.6 has kernels
// for filters of up to 3x3; for larger ones it multiplies a matrix for each map, which takes thirty times as
// long as the forward pass.
#include <algorithm>
#include <array>
#include <memory>

#include "kernels/cpu/interleave.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

/// The maps that lie together in oneDNN's activations and weights.
#if defined(__AVX512F__)
constexpr int kMaps = 16;
constexpr auto kWeights = dnnl::memory::format_tag::Abcde16a;
#else
constexpr int kMaps = 8;
constexpr auto kWeights = dnnl::memory::format_tag::Abcde8a;
#endif
using Maps = Vector<float, kMaps>::Type;

/// Images are divided into parts with sums of their own, which are added in order, so that sums do not depend
/// on the number of threads.
constexpr std::int64_t kMostParts = 8;

/// `Filter` is the side of a filter. A row of it has its sums in registers.
template <int Filter, class T>
class DepthwiseGradients : public PreparedOp {
 public:
  explicit DepthwiseGradients(const ConvBackwardWeights& op, DataType type)
      : g_(op.g),
        stride_(g_.stride.x),
        pad_(g_.pad.x),
        bias_(op.bias),
        blocks_((g_.c + kMaps - 1) / kMaps),
        parts_(std::min(g_.n, kMostParts)) {
    const dnnl::memory::desc weights({g_.c, 1, 1, Filter, Filter}, dnnl::memory::data_type::f32, kWeights);
    args_ = {blocked_activations(g_.src(), kMaps, type), blocked_activations(g_.dst(), kMaps, type),
             from_dnnl(weights, g_.weights())};
    if (bias_) args_.push_back({{g_.k}, DataType::f32, nullptr});
    algorithm_ = "depthwise:own";
    workspace_bytes_ = parts_ * blocks_ * kSums * static_cast<std::int64_t>(sizeof(float));
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const override {
    const T* const src = as<T>(pointers[0]);
    const T* const dst = as<T>(pointers[1]);
    float* const sums = as<float>(workspace);  // [block][part][tap, and the bias][map]
#pragma omp parallel for collapse(2) schedule(static)
    for (std::int64_t block = 0; block < blocks_; ++block)
      for (std::int64_t part = 0; part < parts_; ++part) {
        float* const of_part = sums + (block * parts_ + part) * kSums;
        for (std::int64_t row = 0; row < Filter; ++row)
          sum_row(src, dst, block, part, row, of_part + row * Filter * kMaps);
        if (bias_) sum_bias(dst, block, part, of_part + kTaps * kMaps);
      }
    float* const weights = as<float>(pointers[2]);
    for (std::int64_t block = 0; block < blocks_; ++block)
      for (std::int64_t i = 0; i < kSums; ++i) {
        float total = 0;
        for (std::int64_t part = 0; part < parts_; ++part) total += sums[(block * parts_ + part) * kSums + i];
        const std::int64_t map = block * kMaps + i % kMaps;
        if (i < kTaps * kMaps)
          weights[block * kTaps * kMaps + i] = total;
        else if (bias_ && map < g_.k)
          as<float>(pointers[3])[map] = total;
      }
  }

 private:
  static constexpr std::int64_t kTaps = std::int64_t{Filter} * Filter, kSums = (kTaps + 1) * kMaps;

  std::int64_t first_image(std::int64_t part) const { return g_.n * part / parts_; }

  /// Sums, for the taps of row `row` of the filters, the products over the images of a part.
  void sum_row(const T* src, const T* dst, std::int64_t block, std::int64_t part, std::int64_t row,
               float* sums) const {
    std::array<Maps, Filter> inner{}, border{};
    // In columns [begin, end) all taps of a row see pixels.
    const std::int64_t begin = std::min((pad_ + stride_ - 1) / stride_, g_.ow);
    const std::int64_t room = g_.w + pad_ - Filter;
    const std::int64_t end = room < 0 ? begin : std::clamp(room / stride_ + 1, begin, g_.ow);
    for (std::int64_t n = first_image(part); n < first_image(part + 1); ++n) {
      const T* const image = src + (n * blocks_ + block) * g_.h * g_.w * kMaps;
      const T* const gradient = dst + (n * blocks_ + block) * g_.oh * g_.ow * kMaps;
      for (std::int64_t y = 0; y < g_.oh; ++y) {
        const std::int64_t from = y * stride_ - pad_ + row;
        if (from < 0 || from >= g_.h) continue;
        const T* const line = image + from * g_.w * kMaps;
        const T* const differences = gradient + y * g_.ow * kMaps;
        add_border(line, differences, 0, begin, border);
        add_inner(line, differences, begin, end, inner);
        add_border(line, differences, end, g_.ow, border);
      }
    }
    for (std::int64_t tap = 0; tap < Filter; ++tap) {
      const Maps sum = inner[static_cast<std::size_t>(tap)] + border[static_cast<std::size_t>(tap)];
      store_floats<kMaps>(sums + tap * kMaps, kMaps, sum);
    }
  }

  static Maps maps_at(const T* p) {
    Maps values;
    load_floats<kMaps>(p, kMaps, values);
    return values;
  }

  [[gnu::always_inline]] void add_inner(const T* line, const T* differences, std::int64_t begin,
                                        std::int64_t end, std::array<Maps, Filter>& sums) const {
    std::array<Maps, Filter> own = sums;
    for (std::int64_t x = begin; x < end; ++x) {
      const Maps difference = maps_at(differences + x * kMaps);
      const T* const pixels = line + (x * stride_ - pad_) * kMaps;
      [&]<int... Tap>(std::integer_sequence<int, Tap...>) __attribute__((always_inline)) {
        ((own[Tap] += difference * maps_at(pixels + Tap * kMaps)), ...);
      }
      (std::make_integer_sequence<int, Filter>{});
    }
    sums = own;
  }

  void add_border(const T* line, const T* differences, std::int64_t begin, std::int64_t end,
                  std::array<Maps, Filter>& sums) const {
    for (std::int64_t x = begin; x < end; ++x) {
      const Maps difference = maps_at(differences + x * kMaps);
      const std::int64_t start = x * stride_ - pad_;
      for (std::int64_t tap = std::max<std::int64_t>(0, -start); tap < Filter && start + tap < g_.w; ++tap)
        sums[static_cast<std::size_t>(tap)] += difference * maps_at(line + (start + tap) * kMaps);
    }
  }

  void sum_bias(const T* dst, std::int64_t block, std::int64_t part, float* sums) const {
    Maps sum{};
    const std::int64_t pixels = g_.oh * g_.ow;
    for (std::int64_t n = first_image(part); n < first_image(part + 1); ++n)
      for (std::int64_t i = 0; i < pixels; ++i)
        sum += maps_at(dst + ((n * blocks_ + block) * pixels + i) * kMaps);
    store_floats<kMaps>(sums, kMaps, sum);
  }

  const ConvGeometry g_;
  const std::int64_t stride_, pad_;
  const bool bias_;
  const std::int64_t blocks_, parts_;
};

template <class T>
Prepared prepare_typed(const ConvBackwardWeights& op, DataType type) {
  switch (op.g.filter.x) {
    case 5: return std::make_shared<DepthwiseGradients<5, T>>(op, type);
    case 7: return std::make_shared<DepthwiseGradients<7, T>>(op, type);
    default: return nullptr;
  }
}

}  // namespace

Prepared prepare_depthwise(const ConvBackwardWeights& op, DataType type) {
  const ConvGeometry& g = op.g;
  if (!g.square() || g.groups != g.c || g.groups != g.k || g.c < kMaps) return nullptr;
  return type == DataType::bf16 ? prepare_typed<BFloat16>(op, type) : prepare_typed<float>(op, type);
}

}  // namespace convnet::cpu::own
