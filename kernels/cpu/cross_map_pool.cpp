// Maxima across maps, of plain activations: a run of pixels at a time, for which maps are vectors.
#include <array>

#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

constexpr std::int64_t kRun = 256;  // pixels worked on together

struct Maps {
  std::int64_t begin, end;
};
Maps window(const CrossMapPool& p, std::int64_t output) {
  const std::int64_t first = p.start + p.stride * output;
  return {std::clamp<std::int64_t>(first, 0, p.c), std::clamp<std::int64_t>(first + p.size, 0, p.c)};
}

/// Calls body(n, first pixel, count) for the runs of pixels of all images, in parallel.
template <class Body>
void for_runs(const CrossMapPool& p, const Body& body) {
  const std::int64_t pixels = p.h * p.w, runs = (pixels + kRun - 1) / kRun;
#pragma omp parallel for collapse(2) schedule(static) if (p.n * p.c * pixels >= kParallelElements)
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t run = 0; run < runs; ++run) body(n, run * kRun, std::min(kRun, pixels - run * kRun));
}

void forward(const CrossMapPool& p, const float* src, float* dst) {
  const std::int64_t pixels = p.h * p.w;
  for_runs(p, [=](std::int64_t n, std::int64_t begin, std::int64_t count) {
    for (std::int64_t o = 0; o < p.outputs; ++o) {
      const Maps maps = window(p, o);
      float* out = dst + (n * p.outputs + o) * pixels + begin;
      const float* map = src + (n * p.c + maps.begin) * pixels + begin;
      if (maps.begin >= maps.end) {  // no maps
        std::fill_n(out, count, 0.0F);
        continue;
      }
      std::copy_n(map, count, out);
      for (std::int64_t c = maps.begin + 1; c < maps.end; ++c) {
        map += pixels;
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) out[i] = beats(map[i], out[i]) ? map[i] : out[i];
      }
    }
  });
}

void backward(const CrossMapPool& p, const float* src, const float* diff_dst, float* diff_src) {
  const std::int64_t pixels = p.h * p.w;
  for_runs(p, [=](std::int64_t n, std::int64_t begin, std::int64_t count) {
    for (std::int64_t c = 0; c < p.c; ++c)
      std::fill_n(diff_src + (n * p.c + c) * pixels + begin, count, 0.0F);
    std::array<float, kRun> best;
    std::array<std::int32_t, kRun> where;
    for (std::int64_t o = 0; o < p.outputs; ++o) {
      const Maps maps = window(p, o);
      if (maps.begin >= maps.end) continue;
      const std::int64_t first = (n * p.c + maps.begin) * pixels + begin;
      std::copy_n(src + first, count, best.begin());
      where.fill(0);
      for (std::int64_t c = maps.begin + 1; c < maps.end; ++c) {
        const float* map = src + first + (c - maps.begin) * pixels;
        const auto here = static_cast<std::int32_t>(c - maps.begin);
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const bool better = beats(map[i], best[at]);
          best[at] = better ? map[i] : best[at];
          where[at] = better ? here : where[at];
        }
      }
      const float* diff = diff_dst + (n * p.outputs + o) * pixels + begin;
      for (std::int64_t c = maps.begin; c < maps.end; ++c) {
        float* map = diff_src + first + (c - maps.begin) * pixels;
        const auto here = static_cast<std::int32_t>(c - maps.begin);
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i)
          map[i] += where[static_cast<std::size_t>(i)] == here ? diff[i] : 0.0F;
      }
    }
  });
}

}  // namespace

Prepared prepare(const CrossMapPoolForward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [p = op.p](std::span<std::byte* const> args) {
    forward(p, as_floats(args[0]), as_floats(args[1]));
  });
}

Prepared prepare(const CrossMapPoolBackward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [p = op.p](std::span<std::byte* const> args) {
    backward(p, as_floats(args[0]), as_floats(args[1]), as_floats(args[2]));
  });
}

}  // namespace convnet::cpu::own
