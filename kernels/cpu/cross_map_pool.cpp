// Maxima across maps of plain activations. A run of pixels is processed at a time, so that loops over the
// pixels of a map vectorise.
#include <array>

#include "kernels/cpu/own_kernel.h"
#include "kernels/functors.h"

namespace convnet::cpu::own {
namespace {

constexpr std::int64_t kRun = 256;  // pixels of a run

/// The maps [begin, end) of a window, clipped.
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

template <class T>
void forward(const CrossMapPool& p, const T* src, T* dst) {
  const std::int64_t pixels = p.h * p.w;
  for_runs(p, [=](std::int64_t n, std::int64_t begin, std::int64_t count) {
    for (std::int64_t o = 0; o < p.outputs; ++o) {
      const Maps maps = window(p, o);
      T* out = dst + (n * p.outputs + o) * pixels + begin;
      const T* map = src + (n * p.c + maps.begin) * pixels + begin;
      if (maps.begin >= maps.end) {  // no maps
        std::fill_n(out, count, T{});
        continue;
      }
      std::copy_n(map, count, out);
      for (std::int64_t c = maps.begin + 1; c < maps.end; ++c) {
        map += pixels;
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i)
          out[i] = beats(to_float(map[i]), to_float(out[i])) ? map[i] : out[i];
      }
    }
  });
}

template <class T>
void backward(const CrossMapPool& p, const T* src, const T* diff_dst, T* diff_src) {
  const std::int64_t pixels = p.h * p.w;
  for_runs(p, [=](std::int64_t n, std::int64_t begin, std::int64_t count) {
    // Maps may be in several windows: their sums are rounded once.
    std::vector<std::array<float, kRun>> sums(static_cast<std::size_t>(p.c));
    std::array<float, kRun> best;
    std::array<std::int32_t, kRun> where;
    for (std::int64_t o = 0; o < p.outputs; ++o) {
      const Maps maps = window(p, o);
      if (maps.begin >= maps.end) continue;
      const T* first = src + (n * p.c + maps.begin) * pixels + begin;
      for (std::int64_t i = 0; i < count; ++i) best[static_cast<std::size_t>(i)] = to_float(first[i]);
      where.fill(0);
      for (std::int64_t c = maps.begin + 1; c < maps.end; ++c) {
        const T* map = first + (c - maps.begin) * pixels;
        const auto here = static_cast<std::int32_t>(c - maps.begin);
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const float value = to_float(map[i]);
          const bool better = beats(value, best[at]);
          best[at] = better ? value : best[at];
          where[at] = better ? here : where[at];
        }
      }
      const T* diff = diff_dst + (n * p.outputs + o) * pixels + begin;
      for (std::int64_t c = maps.begin; c < maps.end; ++c) {
        std::array<float, kRun>& sum = sums[static_cast<std::size_t>(c)];
        const auto here = static_cast<std::int32_t>(c - maps.begin);
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<std::size_t>(i);
          sum[at] += where[at] == here ? to_float(diff[i]) : 0.0F;
        }
      }
    }
    for (std::int64_t c = 0; c < p.c; ++c) {
      T* map = diff_src + (n * p.c + c) * pixels + begin;
      const std::array<float, kRun>& sum = sums[static_cast<std::size_t>(c)];
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) map[i] = stored_as<T>(sum[static_cast<std::size_t>(i)]);
    }
  });
}

}  // namespace

Prepared prepare(const CrossMapPoolForward& op, const LayoutHints& hints) {
  return std::make_shared<KernelOp>(plain_activations(op, hints), [p = op.p, type = hinted_type(hints, 0)](
                                                                      std::span<std::byte* const> args) {
    with_stored(type, [&]<class T>(T) { forward(p, as<T>(args[0]), as<T>(args[1])); });
  });
}

Prepared prepare(const CrossMapPoolBackward& op, const LayoutHints& hints) {
  return std::make_shared<KernelOp>(plain_activations(op, hints), [p = op.p, type = hinted_type(hints, 0)](
                                                                      std::span<std::byte* const> args) {
    with_stored(type, [&]<class T>(T) { backward(p, as<T>(args[0]), as<T>(args[1]), as<T>(args[2])); });
  });
}

}  // namespace convnet::cpu::own
