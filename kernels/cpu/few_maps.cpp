// Gradients of the filters of convolutions of few maps, which are the first layers of nets for pictures.
// Without AVX-512, oneDNN takes up to six times as long; with it, the library is faster.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

#if !defined(__AVX512F__)
constexpr int kMaps = kUsualBlock;  ///< output maps that lie together
using Maps = Lanes<float, kMaps>;

/// Whether gradients lie in blocks of maps, in the layout in which oneDNN's kernel for AVX2 reads the
/// filters.
#if defined(__AVX2__)
constexpr bool kBlocked = true;
#else
constexpr bool kBlocked = false;
#endif

constexpr std::int64_t kMostChannels = 4;
/// A band is as many rows of windows as have differences of about kBandBytes in the blocks of a pass.
constexpr std::int64_t kBandBytes = 16 << 10;

/// A pass has the sums of some rows of the filter, whose number divides `Filter`, in registers, for one or
/// two blocks of maps. There should be eight sums or more, because additions take a while.
template <int Filter>
constexpr int kRowsOfPass = Filter == 3 ? 3 : 1;
template <int Filter>
constexpr int kBlocksOfPass = Filter == 5 ? 2 : 1;

/// `Filter` is the side of a filter.
template <int Filter, class T>
class FewMapsGradients : public PreparedOp {
 public:
  FewMapsGradients(const ConvBackwardWeights& op, DataType type)
      : g_(op.g),
        stride_(g_.stride.x),
        pad_(g_.pad.x),
        bias_(op.bias),
        blocks_((g_.k + kMaps - 1) / kMaps),
        groups_((blocks_ + kGroupBlocks - 1) / kGroupBlocks),
        parts_(std::min(g_.n, kMostParts)),
        taps_(g_.c * Filter * Filter),
        width_((g_.ow - 1) * stride_ + Filter),
        band_(std::clamp<std::int64_t>(
            kBandBytes / (g_.ow * kBlocksOfPass<Filter> * std::int64_t{kMaps * sizeof(float)}), 1, g_.oh)) {
    args_ = {{g_.src(), type, nullptr},
             blocked_activations(g_.dst(), kMaps, type),
             {g_.weights(), DataType::f32, nullptr}};
    if constexpr (kBlocked)
      args_[2] = from_dnnl({g_.weights(), dnnl::memory::data_type::f32, dnnl::memory::format_tag::Ohwi8o},
                           g_.weights());
    if (bias_) args_.push_back({{g_.k}, DataType::f32, nullptr});
    algorithm_ = "few maps:own";
    workspace_bytes_ = parts_ * blocks_ * sums() * static_cast<std::int64_t>(sizeof(float));
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const override {
    const T* const src = as<T>(pointers[0]);
    const T* const dst = as<T>(pointers[1]);
    float* const all_sums = as<float>(workspace);  // [part][block][tap, and the bias][map]
    float* const weights = as<float>(pointers[2]);
    float* const biases = bias_ ? as<float>(pointers[3]) : nullptr;
#pragma omp parallel
    {
      std::vector<float> band(static_cast<std::size_t>(g_.c * lines(band_) * width_));
#pragma omp for collapse(2) schedule(static)
      for (std::int64_t part = 0; part < parts_; ++part)
        for (std::int64_t group = 0; group < groups_; ++group)
          sum_part(src, dst, part, group, band.data(), all_sums + part * blocks_ * sums());
#pragma omp for schedule(static)
      for (std::int64_t block = 0; block < blocks_; ++block) add_parts(all_sums, block, weights, biases);
    }
  }

 private:
  /// Blocks that use a band of pictures together.
  static constexpr std::int64_t kGroupBlocks = 4;

  std::int64_t first_image(std::int64_t part) const { return g_.n * part / parts_; }
  /// Returns the lines of the image that `rows` rows of windows cover.
  std::int64_t lines(std::int64_t rows) const { return (rows - 1) * stride_ + Filter; }
  /// Returns the number of sums of a block.
  std::int64_t sums() const { return (taps_ + 1) * kMaps; }

  /// Sums, for all taps and the bias of a group of blocks, the products over the images of a part.
  void sum_part(const T* src, const T* dst, std::int64_t part, std::int64_t group, float* band,
                float* part_sums) const {
    const std::int64_t first = group * kGroupBlocks, end = std::min(first + kGroupBlocks, blocks_);
    std::fill(part_sums + first * sums(), part_sums + end * sums(), 0.0F);
    for (std::int64_t n = first_image(part); n < first_image(part + 1); ++n) {
      for (std::int64_t y = 0; y < g_.oh; y += band_) {
        const std::int64_t rows = std::min(band_, g_.oh - y);
        fill_band(src + n * g_.c * g_.h * g_.w, y, rows, band);
        for (std::int64_t block = first; block < end;) {
          const T* const differences = dst + ((n * blocks_ + block) * g_.oh + y) * g_.ow * kMaps;
          float* const block_sums = part_sums + block * sums();
          if (kBlocksOfPass<Filter> == 2 && block + 2 <= end) {
            sum_blocks<kBlocksOfPass<Filter>>(band, differences, rows, block_sums);
            block += 2;
          } else {
            sum_blocks<1>(band, differences, rows, block_sums);
            ++block;
          }
        }
      }
    }
  }

  /// Copies the lines that `rows` rows of windows from row y on cover, with zeros where they lie outside of
  /// the image.
  void fill_band(const T* image, std::int64_t y, std::int64_t rows, float* band) const {
    const std::int64_t begin = std::min(pad_, width_),
                       pixels = std::clamp<std::int64_t>(width_ - pad_, 0, g_.w);
    for (std::int64_t c = 0; c < g_.c; ++c) {
      for (std::int64_t line = 0; line < lines(rows); ++line, band += width_) {
        const std::int64_t from = y * stride_ - pad_ + line;
        if (from < 0 || from >= g_.h) {
          std::fill_n(band, width_, 0.0F);
          continue;
        }
        std::fill_n(band, begin, 0.0F);
        const T* const pixel = image + (c * g_.h + from) * g_.w;
        for (std::int64_t x = 0; x < pixels; ++x) band[begin + x] = to_float(pixel[x]);
        std::fill(band + begin + pixels, band + width_, 0.0F);
      }
    }
  }

  /// Adds the products of a band to the sums of `Blocks` blocks.
  template <int Blocks>
  void sum_blocks(const float* band, const T* differences, std::int64_t rows, float* block_sums) const {
    if (bias_)
      for (int b = 0; b < Blocks; ++b)
        sum_bias(differences + b * g_.oh * g_.ow * kMaps, rows * g_.ow,
                 block_sums + b * sums() + taps_ * kMaps);
    constexpr int kRows = kRowsOfPass<Filter>;
    for (std::int64_t c = 0; c < g_.c; ++c, band += lines(rows) * width_)
      for (int row = 0; row < Filter; row += kRows)
        sum_taps<Blocks>(band + row * width_, differences, rows,
                         block_sums + (c * Filter + row) * Filter * kMaps,
                         std::make_integer_sequence<int, kRows * Filter>{});
  }

  template <int Blocks, int... Tap>
  void sum_taps(const float* band, const T* differences, std::int64_t rows, float* tap_sums,
                std::integer_sequence<int, Tap...>) const {
    constexpr AllLanes<kMaps> all{};
    const std::int64_t columns = g_.ow, line = width_, stride = stride_;
    const std::int64_t next_sums = sums(), next_block = g_.oh * g_.ow * kMaps;
    std::array<std::array<Maps, sizeof...(Tap)>, Blocks> own;
    for (int b = 0; b < Blocks; ++b)
      (load_lanes(tap_sums + b * next_sums + std::int64_t{Tap} * kMaps, all, own[b][Tap]), ...);
    for (std::int64_t y = 0; y < rows; ++y) {
      const float* pixels = band + y * stride * line;
      for (std::int64_t x = 0; x < columns; ++x, pixels += stride, differences += kMaps) {
        std::array<Maps, Blocks> difference;
        for (int b = 0; b < Blocks; ++b) load_lanes(differences + b * next_block, all, difference[b]);
        const auto add = [&](int tap, float pixel) __attribute__((always_inline)) {
          for (int b = 0; b < Blocks; ++b) own[b][tap] += difference[b] * pixel;
        };
        (add(Tap, pixels[Tap / Filter * line + Tap % Filter]), ...);
      }
    }
    for (int b = 0; b < Blocks; ++b)
      (store_lanes(tap_sums + b * next_sums + std::int64_t{Tap} * kMaps, all, own[b][Tap]), ...);
  }

  void sum_bias(const T* differences, std::int64_t pixels, float* bias_sums) const {
    Maps sum, difference;
    load_lanes(bias_sums, AllLanes<kMaps>{}, sum);
    for (std::int64_t i = 0; i < pixels; ++i) {
      load_lanes(differences + i * kMaps, AllLanes<kMaps>{}, difference);
      sum += difference;
    }
    store_lanes(bias_sums, AllLanes<kMaps>{}, sum);
  }

  /// Adds the sums of a block's parts.
  void add_parts(const float* all_sums, std::int64_t block, float* weights, float* biases) const {
    constexpr std::int64_t kWindow = std::int64_t{Filter} * Filter;
    const std::int64_t maps = std::min<std::int64_t>(kMaps, g_.k - block * kMaps);
    for (std::int64_t tap = 0; tap < taps_ + (bias_ ? 1 : 0); ++tap) {
      Maps total, more;
      for (std::int64_t part = 0; part < parts_; ++part) {
        load_lanes(all_sums + (part * blocks_ + block) * sums() + tap * kMaps, AllLanes<kMaps>{}, more);
        total += more;
      }
      if (tap == taps_)
        store_lanes(biases + block * kMaps, static_cast<std::size_t>(maps), total);
      else if constexpr (kBlocked)
        store_lanes(weights + ((block * kWindow + tap % kWindow) * g_.c + tap / kWindow) * kMaps,
                    AllLanes<kMaps>{}, total);
      else
        for (std::int64_t map = 0; map < maps; ++map)
          weights[(block * kMaps + map) * taps_ + tap] = total[map];
    }
  }

  const ConvGeometry g_;
  const std::int64_t stride_, pad_;
  const bool bias_;
  const std::int64_t blocks_, groups_, parts_;
  const std::int64_t taps_;   ///< of a filter
  const std::int64_t width_;  ///< pixels of a line in a band
  const std::int64_t band_;   ///< rows of windows of a band
};

template <class T>
Prepared prepare_typed(const ConvBackwardWeights& op, DataType type) {
  switch (op.g.filter.x) {
    case 3: return std::make_shared<FewMapsGradients<3, T>>(op, type);
    case 5: return std::make_shared<FewMapsGradients<5, T>>(op, type);
    case 7: return std::make_shared<FewMapsGradients<7, T>>(op, type);
    case 11: return std::make_shared<FewMapsGradients<11, T>>(op, type);
    default: return nullptr;
  }
}

#endif

}  // namespace

Prepared prepare_few_maps([[maybe_unused]] const ConvBackwardWeights& op, [[maybe_unused]] DataType type) {
#if defined(__AVX512F__)
  return nullptr;
#else
  const ConvGeometry& g = op.g;
  if (!g.square() || g.groups != 1 || g.c > kMostChannels || g.k < kMaps) return nullptr;
  // oneDNN's kernel for AVX2 and three channels is up to 1.5 times as fast with filters of 3x3, but not with
  // biases, for which it takes up to 1.8 times as long.
  if (kBlocked && type == DataType::f32 && g.c == 3 && g.filter.x == 3 && !op.bias) return nullptr;
  return type == DataType::bf16 ? prepare_typed<BFloat16>(op, type) : prepare_typed<float>(op, type);
#endif
}

}  // namespace convnet::cpu::own
