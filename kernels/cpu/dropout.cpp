// Dropout and noisy relu. Every canonical element, map or image has its own random words.
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "convnet/base/philox.h"
#include "kernels/cpu/own_kernel.h"
#include "kernels/functors.h"

namespace convnet::cpu::own {
namespace {

constexpr std::int64_t kPixels = 256;  // pixels that are processed at a time

constexpr std::uint32_t kCounters = 16;  // counters that are processed together, in a loop that vectorises

/// Writes the words of `kCounters` counters (c0 + i, c1, c2, c3), one counter after the other.
void philox_counters(std::uint64_t key, std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                     std::uint32_t c3, std::uint32_t* words) {
  std::array<std::uint32_t, kCounters> w0, w1, w2, w3;
  for (std::uint32_t i = 0; i < kCounters; ++i) w0[i] = c0 + i;
  w1.fill(c1);
  w2.fill(c2);
  w3.fill(c3);
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (std::uint32_t i = 0; i < kCounters; ++i) philox_round(k0, k1, w0[i], w1[i], w2[i], w3[i]);
    philox_next_key(k0, k1);
  }
  for (std::size_t i = 0; i < kCounters; ++i) {
    words[4 * i] = w0[i];
    words[4 * i + 1] = w1[i];
    words[4 * i + 2] = w2[i];
    words[4 * i + 3] = w3[i];
  }
}

/// The words of one image's elements, as element_random() gives them.
struct WordStream {
  std::uint64_t key, iteration;
  std::uint32_t image;

  std::uint32_t word(std::int64_t element) const {
    return element_random(key, iteration, image, static_cast<std::uint32_t>(element));
  }
  /// Writes the word of element `first` + i to words[i]; `first` is a multiple of 4. Writes groups of four
  /// words, so up to 3 words past `count`.
  void fill(std::int64_t first, std::int64_t count, std::uint32_t* words) const {
    const auto low = static_cast<std::uint32_t>(iteration);
    const auto high = static_cast<std::uint32_t>(iteration >> 32);
    const auto first_four = static_cast<std::uint32_t>(first / 4);
    const auto fours = static_cast<std::uint32_t>((count + 3) / 4);
    std::uint32_t i = 0;
    for (; i + kCounters <= fours; i += kCounters)
      philox_counters(key, first_four + i, image, low, high, words + std::size_t{4} * i);
    for (; i < fours; ++i) {
      const Philox4x32 r = philox(key, first_four + i, image, low, high);
      std::copy_n(r.value, 4, words + std::size_t{4} * i);
    }
  }
};

/// Decides which elements are kept: those whose word is below keep * 2^32. The comparison is made in 32 bits,
/// because that vectorises better.
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

// The functions of the following structs process `count` elements that are `step` apart, each with kWords
// random words.

struct DropoutRun {
  static constexpr std::int64_t kWords = 1;
  Keep keep;
  float scale;

  template <class T>
  void operator()(const std::uint32_t* words, std::int64_t count, std::int64_t step, const T* src,
                  T* dst) const {
    const auto drop = [=, this](auto constant_step) {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) {
        const T kept = stored_as<T>(to_float(src[i * constant_step]) * scale);
        dst[i * constant_step] = keep(words[i]) ? kept : T{};
      }
    };
    if (step == 1)
      drop(std::integral_constant<std::int64_t, 1>{});
    else
      drop(step);
  }
};

/// max(0, x + noise); keeps NaN.
struct NoisyReluRun {
  static constexpr std::int64_t kWords = 2;  // as element_normal() takes them

  template <class T>
  void operator()(const std::uint32_t* words, std::int64_t count, std::int64_t step, const T* src,
                  T* dst) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const float x = to_float(src[i * step]);
      const float deviation = std::sqrt(1 / (1 + std::exp(-x)));
      dst[i * step] =
          stored_as<T>(ReluFunctor{}.forward(x + deviation * normal(words[2 * i], words[2 * i + 1])));
    }
  }
};

/// Processes pixels [begin, end) of a block of channels of one image. `channel` is the block's first channel,
/// and `first_element` the index of the image's first element. `src` and `dst` point to the block.
template <class Run, class T>
void random_block(const ActivationView& view, const WordStream& stream, const Run& run, DropUnit unit,
                  std::int64_t first_element, std::int64_t channel, std::int64_t begin, std::int64_t end,
                  const T* src, T* dst) {
  std::array<std::uint32_t, Run::kWords * kPixels + 8> words;
  const std::int64_t channels = std::min(view.block, view.c - channel);
  for (std::int64_t lane = 0; lane < channels; ++lane) {
    const std::int64_t at = begin * view.block + lane;
    std::int64_t offset = 0;
    if (unit == DropUnit::value) {
      const std::int64_t first = (first_element + (channel + lane) * view.spatial + begin) * Run::kWords;
      offset = first % 4;
      stream.fill(first - offset, offset + (end - begin) * Run::kWords, words.data());
    } else {
      const std::int64_t map = first_element / view.spatial + channel + lane;
      std::fill_n(words.begin(), end - begin, stream.word(unit == DropUnit::map ? map : 0));
    }
    run(words.data() + offset, end - begin, view.block, src + at, dst + at);
  }
  for (std::int64_t s = begin; s < end; ++s)
    for (std::int64_t lane = channels; lane < view.block; ++lane) dst[s * view.block + lane] = T{};
}

/// Prepares an operation on src, dst and the step block that processes elements by `run`.
template <class Op, class Run>
Prepared prepare_random(const Op& op, const LayoutHints& hints, const Run& run,
                        const DropUnit unit = DropUnit::value) {
  const TensorDesc tensor = walkable(op.dims, hints);
  ActivationView view = *activation_view(tensor);
  // The elements of a plain image are one run, like the pixels of a single channel.
  if (view.block == 1 && unit != DropUnit::map) {
    view.spatial *= view.c;
    view.c = view.padded_c = 1;
  }
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor),
      [view, run, unit, type = tensor.type, key = op.key, first_image = op.first_image,
       first_element = op.first_element](std::span<std::byte* const> args) {
        StepHeader step;
        std::memcpy(&step, args[2], sizeof step);
        const std::int64_t blocks = view.padded_c / view.block;
        const std::int64_t pieces = (view.spatial + kPixels - 1) / kPixels;
        with_stored(type, [&]<class T>(T) {
#pragma omp parallel for collapse(3) schedule(static) if (view.size() >= kParallelElements)
          for (std::int64_t n = 0; n < view.n; ++n)
            for (std::int64_t b = 0; b < blocks; ++b)
              for (std::int64_t piece = 0; piece < pieces; ++piece) {
                const std::int64_t offset = (n * blocks + b) * view.spatial * view.block;
                const WordStream stream{key, step.iteration, static_cast<std::uint32_t>(first_image + n)};
                random_block(view, stream, run, unit, first_element, b * view.block, piece * kPixels,
                             std::min(view.spatial, (piece + 1) * kPixels), as<const T>(args[0]) + offset,
                             as<T>(args[1]) + offset);
              }
        });
      });
}

}  // namespace

Prepared prepare(const Dropout& op, const LayoutHints& hints) {
  return prepare_random(op, hints, DropoutRun{Keep(op.keep), op.scale}, op.unit);
}

Prepared prepare(const NoisyRelu& op, const LayoutHints& hints) {
  return prepare_random(op, hints, NoisyReluRun{});
}

}  // namespace convnet::cpu::own
