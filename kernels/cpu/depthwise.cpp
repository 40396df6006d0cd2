// Gradients of the filters of depthwise convolutions, whose groups have one map each. oneDNN 2.6 has kernels
// for filters of up to 3x3; for larger ones, and where windows leave the image by more behind than before it,
// it multiplies a matrix for each map, which takes up to thirty times as long as the forward pass.
#include <memory>

#include "kernels/cpu/depthwise.h"

namespace convnet::cpu::own {
namespace {

constexpr int kMaps = kDepthwiseMaps;
using Maps = Vector<float, kMaps>::Type;

/// Rows of a filter whose sums are in registers at once, beside a vector of differences.
template <int Filter>
constexpr int kRowsAtOnce =
#if defined(__AVX512F__)
    std::min(Filter, 31 / Filter);
#else
    std::min(Filter, 15 / Filter);
#endif

/// `Filter` is the side of a filter.
template <int Filter, class T>
class DepthwiseGradients : public PreparedOp {
 public:
  explicit DepthwiseGradients(const ConvBackwardWeights& op, DataType type)
      : g_(op.g),
        stride_(g_.stride.x),
        pad_(g_.pad.x),
        bias_(op.bias),
        blocks_((g_.c + kMaps - 1) / kMaps),
        parts_(std::min(g_.n, kMostParts)),
        width_((g_.ow - 1) * stride_ + Filter),
        band_(band_rows()) {
    args_ = {blocked_activations(g_.src(), kMaps, type), blocked_activations(g_.dst(), kMaps, type),
             depthwise_weights(g_)};
    if (bias_) args_.push_back({{g_.k}, DataType::f32, nullptr});
    algorithm_ = "depthwise:own";
    workspace_bytes_ = parts_ * blocks_ * kSums * static_cast<std::int64_t>(sizeof(float));
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const override {
    const T* const src = as<T>(pointers[0]);
    const T* const dst = as<T>(pointers[1]);
    float* const sums = as<float>(workspace);  // [block][part][tap, and the bias][map]
    float* const weights = as<float>(pointers[2]);
    float* const biases = bias_ ? as<float>(pointers[3]) : nullptr;
    const BlockRanges ranges(parts_, blocks_);
#pragma omp parallel
    {
      Band band(lines(band_), -pad_, width_);
#pragma omp for collapse(2) schedule(static)
      for (std::int64_t part = 0; part < parts_; ++part)
        for (std::int64_t range = 0; range < ranges.count(); ++range)
          sum_part(src, dst, part, ranges.begin(range), ranges.begin(range + 1), band, sums);
#pragma omp for schedule(static)
      for (std::int64_t block = 0; block < blocks_; ++block)
        add_parts(sums + block * parts_ * kSums, block, weights + block * kTaps * kMaps, biases);
    }
  }

 private:
  static constexpr std::int64_t kTaps = std::int64_t{Filter} * Filter, kSums = (kTaps + 1) * kMaps;

  std::int64_t first_image(std::int64_t part) const { return g_.n * part / parts_; }
  /// Returns the lines of the image that `rows` rows of windows cover.
  std::int64_t lines(std::int64_t rows) const { return (rows - 1) * stride_ + Filter; }
  /// Returns the rows of windows in a band.
  std::int64_t band_rows() const {
    const std::int64_t most = Band::kBytes / (width_ * std::int64_t{kMaps * sizeof(float)});
    return std::clamp<std::int64_t>((most - Filter) / stride_ + 1, 1, g_.oh);
  }

  /// Sums, for all taps and the biases of blocks [first, end), the products over the images of a part.
  void sum_part(const T* src, const T* dst, std::int64_t part, std::int64_t first, std::int64_t end,
                Band& band, float* all_sums) const {
    const auto sums_of = [&](std::int64_t block) { return all_sums + (block * parts_ + part) * kSums; };
    for (std::int64_t block = first; block < end; ++block) std::fill_n(sums_of(block), kSums, 0.0F);
    for (std::int64_t n = first_image(part); n < first_image(part + 1); ++n)
      for (std::int64_t block = first; block < end; ++block)
        sum_image(src + (n * blocks_ + block) * g_.h * g_.w * kMaps,
                  dst + (n * blocks_ + block) * g_.oh * g_.ow * kMaps, band, sums_of(block));
  }

  /// Adds the products of a block of maps of an image.
  void sum_image(const T* image, const T* differences, Band& band, float* sums) const {
    for (std::int64_t y = 0; y < g_.oh; y += band_) {
      const std::int64_t rows = std::min(band_, g_.oh - y);
      band.fill(image, g_.h, g_.w, y * stride_ - pad_, lines(rows));
      sum_band<0>(band.data(), image + (y + band_) * stride_ * g_.w * kMaps, differences + y * g_.ow * kMaps,
                  rows, sums);
    }
    if (bias_) sum_bias(differences, sums + kTaps * kMaps);
  }

  template <class Stored>
  static Maps maps_at(const Stored* p) {
    Maps values;
    load_floats<kMaps>(p, kMaps, values);
    return values;
  }

  /// Adds the products of a band to the sums of the taps in rows `First` and following. `next` are the pixels
  /// of the next band.
  template <int First>
  void sum_band(const float* band, const T* next, const T* differences, std::int64_t rows,
                float* sums) const {
    constexpr int kRows = std::min(kRowsAtOnce<Filter>, Filter - First);
    sum_rows<First == 0>(band + First * width_ * kMaps, next, differences, rows,
                         sums + std::int64_t{First} * Filter * kMaps,
                         std::make_integer_sequence<int, kRows * Filter>{});
    if constexpr (First + kRows < Filter) sum_band<First + kRows>(band, next, differences, rows, sums);
  }

  template <bool Fetches, int... Tap>
  void sum_rows(const float* band, const T* next, const T* differences, std::int64_t rows, float* sums,
                std::integer_sequence<int, Tap...>) const {
    const std::int64_t columns = g_.ow, line = width_ * kMaps, step = stride_ * kMaps;
    std::array<Maps, sizeof...(Tap)> own;
    (load(sums + std::int64_t{Tap} * kMaps, own[Tap]), ...);
    for (std::int64_t y = 0; y < rows; ++y) {
      const float* pixels = band + y * stride_ * line;
      if constexpr (Fetches) {
        prefetch(next + y * stride_ * g_.w * kMaps, stride_ * g_.w * kMaps);
        prefetch(differences + band_ * columns * kMaps, columns * kMaps);
      }
      for (std::int64_t x = 0; x < columns; ++x, pixels += step, differences += kMaps) {
        const Maps difference = maps_at(differences);
        Maps pixel;
        ((load(pixels + Tap / Filter * line + std::int64_t{Tap % Filter} * kMaps, pixel),
          own[Tap] += difference * pixel),
         ...);
      }
    }
    (store(sums + std::int64_t{Tap} * kMaps, own[Tap]), ...);
  }

  /// Adds the sums of a block's parts. `weights` are those of the block, `biases` those of all maps, or null.
  void add_parts(const float* sums, std::int64_t block, float* weights, float* biases) const {
    for (std::int64_t tap = 0; tap <= kTaps; ++tap) {
      Maps total{};
      for (std::int64_t part = 0; part < parts_; ++part) total += maps_at(sums + part * kSums + tap * kMaps);
      if (tap < kTaps)
        store(weights + tap * kMaps, total);
      else if (biases != nullptr)
        store_floats<kMaps>(biases + block * kMaps,
                            static_cast<std::size_t>(std::min<std::int64_t>(kMaps, g_.k - block * kMaps)),
                            total);
    }
  }

  void sum_bias(const T* differences, float* sums) const {
    Maps sum = maps_at(sums);
    for (std::int64_t i = 0; i < g_.oh * g_.ow; ++i) sum += maps_at(differences + i * kMaps);
    store(sums, sum);
  }

  const ConvGeometry g_;
  const std::int64_t stride_, pad_;
  const bool bias_;
  const std::int64_t blocks_, parts_;
  const std::int64_t width_;  ///< pixels of a line in a band
  const std::int64_t band_;   ///< rows of windows of a band
};

/// Returns whether this kernel is the faster one for filters of 3x3.
bool prefers_own(const ConvGeometry& g, DataType type) {
  const bool overhangs = g.rows().end() > g.h + g.pad.y || g.columns().end() > g.w + g.pad.x;
  return overhangs || (kRegisterBytes == 32 && type == DataType::f32 && g.stride.x == 1) ||
         (kRegisterBytes < 64 && type == DataType::bf16);
}

template <class T>
Prepared prepare_typed(const ConvBackwardWeights& op, DataType type) {
  switch (op.g.filter.x) {
    case 3: return prefers_own(op.g, type) ? std::make_shared<DepthwiseGradients<3, T>>(op, type) : nullptr;
    case 5: return std::make_shared<DepthwiseGradients<5, T>>(op, type);
    case 7: return std::make_shared<DepthwiseGradients<7, T>>(op, type);
    default: return nullptr;
  }
}

}  // namespace

Prepared prepare_depthwise(const ConvBackwardWeights& op, DataType type) {
  const ConvGeometry& g = op.g;
  if (!is_depthwise(g)) return nullptr;
  return type == DataType::bf16 ? prepare_typed<BFloat16>(op, type) : prepare_typed<float>(op, type);
}

}  // namespace convnet::cpu::own
