// Gradients of the filters of convolutions of 1x1 pixel with AVX2. oneDNN 2.6 computes them as fast from the
// caches, but takes up to 1.5 times as long where activations come from memory, which it does not fetch
// ahead. With AVX-512 the library keeps them.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr int kMaps = kUsualBlock;  ///< maps that lie together
using Maps = Vector<float, kMaps>::Type;
constexpr std::int64_t kFilters = std::int64_t{kMaps} * kMaps;  ///< filters between two blocks of maps

/// There are fewer than kMostParts parts of images if their sums would take more.
constexpr std::int64_t kPartsBytes = 512 << 10;
/// Up to kPixels pixels of a few blocks of maps stay in the first-level cache.
constexpr std::int64_t kPixels = 256;
/// A pass has the sums of kInputs inputs to the outputs of up to kMostBlocks blocks in registers.
constexpr std::int64_t kMostBlocks = 3;
constexpr int kInputs = 4;

class PointwiseGradients : public PreparedOp {
 public:
  explicit PointwiseGradients(const ConvGeometry& g)
      : images_(g.n),
        pixels_(g.h * g.w),
        inputs_(g.c / kMaps),
        outputs_(g.k / kMaps),
        groups_((outputs_ + kMostBlocks - 1) / kMostBlocks),
        sums_(g.c * g.k),
        parts_(std::clamp<std::int64_t>(kPartsBytes / (sums_ * std::int64_t{sizeof(float)}), 1,
                                        std::min(g.n, kMostParts))) {
    args_ = {blocked_activations(g.src(), kMaps), blocked_activations(g.dst(), kMaps),
             from_dnnl({g.weights(), dnnl::memory::data_type::f32, dnnl::memory::format_tag::OIhw8i8o},
                       g.weights())};
    algorithm_ = "pointwise:own";
    if (parts_ > 1) workspace_bytes_ = parts_ * sums_ * static_cast<std::int64_t>(sizeof(float));
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const override {
    const float* const src = as<float>(pointers[0]);
    const float* const dst = as<float>(pointers[1]);
    float* const weights = as<float>(pointers[2]);
    float* const sums = parts_ > 1 ? as<float>(workspace) : weights;
    const BlockRanges ranges(parts_, groups_);
#pragma omp parallel
    {
#pragma omp for collapse(2) schedule(static)
      for (std::int64_t part = 0; part < parts_; ++part)
        for (std::int64_t range = 0; range < ranges.count(); ++range)
          sum_part(src, dst, part, ranges.begin(range), ranges.begin(range + 1), sums + part * sums_);
      if (parts_ > 1) {
#pragma omp for schedule(static)
        for (std::int64_t i = 0; i < sums_; i += kFilters) add_parts(sums + i, weights + i);
      }
    }
  }

 private:
  /// Some pixels of some images, which stay in the first-level cache. next_x and next_dy are the distances in
  /// memory to the chunk that follows.
  struct Chunk {
    std::int64_t images, pixels, next_x, next_dy;
  };

  std::int64_t first_image(std::int64_t part) const { return images_ * part / parts_; }
  std::int64_t first_output(std::int64_t group) const { return outputs_ * group / groups_; }

  /// Sums the products over the images of a part for the outputs of groups [first, end).
  void sum_part(const float* src, const float* dst, std::int64_t part, std::int64_t first, std::int64_t end,
                float* sums) const {
    const std::int64_t filters = inputs_ * kFilters;  // numbers of the filters of a block of outputs
    std::fill(sums + first_output(first) * filters, sums + first_output(end) * filters, 0.0F);
    const std::int64_t together = std::max<std::int64_t>(1, kPixels / pixels_);
    for (std::int64_t n = first_image(part); n < first_image(part + 1); n += together) {
      const std::int64_t images = std::min(together, first_image(part + 1) - n);
      for (std::int64_t pixel = 0; pixel < pixels_; pixel += kPixels) {
        Chunk chunk{images, std::min(kPixels, pixels_ - pixel), kPixels * kMaps, kPixels * kMaps};
        if (pixel + kPixels >= pixels_) {
          chunk.next_x = (images * inputs_ * pixels_ - pixel) * kMaps;
          chunk.next_dy = (images * outputs_ * pixels_ - pixel) * kMaps;
        }
        const float* const x = src + (n * inputs_ * pixels_ + pixel) * kMaps;
        const float* const dy = dst + (n * outputs_ * pixels_ + pixel) * kMaps;
        for (std::int64_t group = first; group < end; ++group) {
          const std::int64_t output = first_output(group);
          const float* const differences = dy + output * pixels_ * kMaps;
          float* const group_sums = sums + output * filters;
          switch (first_output(group + 1) - output) {
            case 3: sum_group<3>(x, differences, chunk, group == first, group_sums); break;
            case 2: sum_group<2>(x, differences, chunk, group == first, group_sums); break;
            default: sum_group<1>(x, differences, chunk, group == first, group_sums);
          }
        }
      }
    }
  }

  /// Adds the products of a chunk to the sums of a group, which may be the first one that reads its inputs.
  template <int Blocks>
  void sum_group(const float* x, const float* dy, const Chunk& chunk, bool first, float* sums) const {
    const std::int64_t plane = pixels_ * kMaps, next_image = inputs_ * plane;
    for (std::int64_t input = 0; input < inputs_; ++input)
      for (int i = 0; i < kMaps; i += kInputs) {
        const float* const from = x + input * plane + i;
        // Each pass fetches a block of the next chunk, because processors do not foresee where that lies.
        const std::int64_t block = first ? input : 2 * input + i / kInputs;
        Ahead ahead{from, next_image};
        if (first && i == 0)
          ahead = {from + chunk.next_x, next_image};
        else if (block < Blocks)
          ahead = {dy + block * plane + chunk.next_dy, outputs_ * plane};
        sum_pass(from, dy, ahead, chunk, sums + (input * kMaps + i) * kMaps,
                 std::make_integer_sequence<int, Blocks>{},
                 std::make_integer_sequence<int, Blocks * kInputs>{});
      }
  }
  /// Pixels that a pass fetches, with the distance to those of the next image.
  struct Ahead {
    const float* pixels;
    std::int64_t next_image;
  };

  /// Sum number `Sum` is that of block Sum % Blocks and input Sum / Blocks. (Loops over sums instead of packs
  /// would keep them in memory.)
  template <int... Block, int... Sum>
  void sum_pass(const float* x, const float* dy, Ahead ahead, const Chunk& chunk, float* sums,
                std::integer_sequence<int, Block...>, std::integer_sequence<int, Sum...>) const {
    constexpr int kBlocks = sizeof...(Block);
    const std::int64_t next_sums = inputs_ * kFilters, next_block = pixels_ * kMaps;
    std::array<Maps, sizeof...(Sum)> own;
    (load(sums + Sum % kBlocks * next_sums + std::int64_t{Sum / kBlocks} * kMaps, own[Sum]), ...);
    for (std::int64_t n = 0; n < chunk.images; ++n) {
      const float* from = x + n * inputs_ * pixels_ * kMaps;
      const float* difference = dy + n * outputs_ * pixels_ * kMaps;
      const float* fetched = ahead.pixels + n * ahead.next_image;
      for (std::int64_t pixel = 0; pixel < chunk.pixels;
           ++pixel, from += kMaps, difference += kMaps, fetched += kMaps) {
        __builtin_prefetch(fetched, 0, 2);
        std::array<Maps, kBlocks> d;
        (load(difference + Block * next_block, d[Block]), ...);
        ((own[Sum] += d[Sum % kBlocks] * from[Sum / kBlocks]), ...);
      }
    }
    (store(sums + Sum % kBlocks * next_sums + std::int64_t{Sum / kBlocks} * kMaps, own[Sum]), ...);
  }

  /// Adds the sums of all parts for kMaps inputs and outputs.
  void add_parts(const float* sums, float* weights) const {
    for (std::int64_t i = 0; i < kFilters; i += kMaps) {
      Maps total{}, more;
      for (std::int64_t part = 0; part < parts_; ++part) {
        load(sums + part * sums_ + i, more);
        total += more;
      }
      store(weights + i, total);
    }
  }

  const std::int64_t images_, pixels_;
  const std::int64_t inputs_, outputs_;  ///< blocks of maps
  const std::int64_t groups_;            ///< of blocks of outputs whose sums are in registers together
  const std::int64_t sums_;              ///< of a part
  const std::int64_t parts_;
};
#endif

}  // namespace

Prepared prepare_pointwise([[maybe_unused]] const ConvBackwardWeights& op, [[maybe_unused]] DataType type) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  const ConvGeometry& g = op.g;
  constexpr std::int64_t kLeastPixels = 128;  // with 7x7, the library is as fast
  const bool known = g.filter == Sides(1) && g.stride == Sides(1) && g.pad == Sides(0) && g.groups == 1 &&
                     g.oh == g.h && g.ow == g.w && g.c % kMaps == 0 && g.k % kMaps == 0;
  if (known && !op.bias && type == DataType::f32 && g.n > 0 && g.h * g.w >= kLeastPixels)
    return std::make_shared<PointwiseGradients>(g);
#endif
  return nullptr;
}

}  // namespace convnet::cpu::own
