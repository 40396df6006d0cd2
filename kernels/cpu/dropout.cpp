#include <array>
#include <cstring>

#include "kernels/cpu/own_kernel.h"
#include "kernels/philox.h"

namespace convnet::cpu {
namespace {

constexpr std::int64_t kPixels = 256;  // pixels masked at a time

/// The words of one image's elements, as element_random() gives them.
struct WordStream {
  std::uint64_t key, iteration;
  std::uint32_t image;

  /// words[i] belongs to element `first` + i; `first` is a multiple of 4. Writes whole fours: up to 3 past
  /// `count`.
  void fill(std::int64_t first, std::int64_t count, std::uint32_t* words) const {
    const auto low = static_cast<std::uint32_t>(iteration);
    const auto high = static_cast<std::uint32_t>(iteration >> 32);
    const auto first_four = static_cast<std::uint32_t>(first / 4);
    const auto fours = static_cast<std::uint32_t>((count + 3) / 4);
#pragma omp simd
    for (std::uint32_t i = 0; i < fours; ++i) {
      const Philox4x32 r = philox(key, first_four + i, image, low, high);
      words[4 * i] = r.value[0];
      words[4 * i + 1] = r.value[1];
      words[4 * i + 2] = r.value[2];
      words[4 * i + 3] = r.value[3];
    }
  }
};

/// Which words keep their element: those below keep * 2^32. Compared in 32 bits, which vectorises better.
struct Keep {
  bool any;
  std::uint32_t last;

  explicit Keep(float keep) {
    const auto threshold = static_cast<std::uint64_t>(static_cast<double>(keep) * 0x1p32);
    any = threshold > 0;
    last = static_cast<std::uint32_t>(threshold - 1);
  }
  bool operator()(std::uint32_t word) const { return any & (word <= last); }
};

/// Pixels [begin, end) of one block of channels, starting with channel `channel`, of one image. `src` and
/// `dst` point to the block.
void drop_block(const ActivationView& view, const WordStream& stream, Keep keep, float scale,
                std::int64_t channel, std::int64_t begin, std::int64_t end, const float* src, float* dst) {
  std::array<std::uint32_t, kPixels + 8> words;
  const std::int64_t channels = std::min(view.block, view.c - channel);
  for (std::int64_t lane = 0; lane < channels; ++lane) {
    const std::int64_t first = (channel + lane) * view.spatial + begin;
    const std::int64_t offset = first % 4;
    stream.fill(first - offset, offset + end - begin, words.data());
    const std::uint32_t* word = words.data() + offset - begin;
    for (std::int64_t s = begin; s < end; ++s) {
      const std::int64_t at = s * view.block + lane;
      dst[at] = keep(word[s]) ? src[at] * scale : 0.0F;
    }
  }
  for (std::int64_t s = begin; s < end; ++s)
    for (std::int64_t lane = channels; lane < view.block; ++lane) dst[s * view.block + lane] = 0.0F;
}

}  // namespace

Prepared prepare(const Dropout& op, const LayoutHints& hints) {
  TensorDesc tensor{op.dims, DataType::f32, hinted_layout(hints, 0)};
  if (!activation_view(tensor)) tensor.layout = nullptr;
  ActivationView view = *activation_view(tensor);
  if (view.block == 1) {  // the elements of a plain image are one run, like the pixels of a single channel
    view.spatial *= view.c;
    view.c = view.padded_c = 1;
  }
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor.layout), [op, view](std::span<std::byte* const> args) {
        StepHeader step;
        std::memcpy(&step, args[2], sizeof step);
        const Keep keep(op.keep);
        const std::int64_t blocks = view.padded_c / view.block;
        const std::int64_t pieces = (view.spatial + kPixels - 1) / kPixels;
#pragma omp parallel for collapse(3) schedule(static) if (view.size() >= kParallelElements)
        for (std::int64_t n = 0; n < view.n; ++n)
          for (std::int64_t b = 0; b < blocks; ++b)
            for (std::int64_t piece = 0; piece < pieces; ++piece) {
              const std::int64_t offset = (n * blocks + b) * view.spatial * view.block;
              const WordStream stream{op.key, step.iteration, static_cast<std::uint32_t>(op.first_image + n)};
              drop_block(view, stream, keep, op.scale, b * view.block, piece * kPixels,
                         std::min(view.spatial, (piece + 1) * kPixels), as_floats(args[0]) + offset,
                         as_floats(args[1]) + offset);
            }
      });
}

}  // namespace convnet::cpu
