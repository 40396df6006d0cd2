// Measures the FLOP/s and the copy bandwidth of this machine, with which benchmarks and predictions compare.
#include "kernels/cpu/own_kernels.h"

#include <omp.h>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/cpu/lanes.h"

namespace convnet::cpu::own {

namespace {

// The sums of the loop below must stay in registers (tests/kernels/peak_test.py): without AVX-512, there are
// 16 of them.
constexpr int kLanes = kRegisterBytes / static_cast<int>(sizeof(float));
using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));

/// Returns the FLOP/s of a team of up to `threads` threads that repeat `multiply_add(sum, factor, term)`,
/// which does `flops` operations: the best of five short loops.
template <class MultiplyAdd>
double best_rate(int threads, int flops, const MultiplyAdd& multiply_add) {
  constexpr int chains = 12;         // as many independent sums hide the latency of an instruction
  constexpr int rounds = 1'000'000;  // some milliseconds
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    float sink = 0;
    int team = 0;
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel num_threads(threads) reduction(+ : sink, team)
    {
      team = 1;
      const auto seed = static_cast<float>(omp_get_thread_num() + 1);
      const Vector factor = Vector{} + 0.999F;
      const Vector term = Vector{} + 0.001F * seed;
      Vector sums[chains];
      for (int c = 0; c < chains; ++c) sums[c] = Vector{} + seed * static_cast<float>(c);
      for (int r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
        for (int c = 0; c < chains; ++c) sums[c] = multiply_add(sums[c], factor, term);
      }
      for (int c = 0; c < chains; ++c) sink += sums[c][0];
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    // The sum is used, so the loop cannot be dropped.
    if (sink > 0) best = std::max(best, 1.0 * flops * chains * rounds * team / seconds);
  }
  return best;
}

}  // namespace

double measure_peak_flops(int threads, [[maybe_unused]] DataType factors) {
#if defined(__AVX512BF16__)
  if (factors == DataType::bf16)
    return best_rate(threads, 4 * kLanes, [](Vector sum, Vector factor, Vector term) {
      return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)factor, (__m512bh)term);
    });
#endif
  return best_rate(threads, 2 * kLanes,
                   [](Vector sum, Vector factor, Vector term) { return sum * factor + term; });
}

double measure_copy_bandwidth(int threads) {
  constexpr std::int64_t count = 1 << 25;
  std::vector<float> from(count, 1.0F), to(count, 0.0F);
  double best = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (std::int64_t i = 0; i < count; ++i)
      to[static_cast<std::size_t>(i)] = from[static_cast<std::size_t>(i)];
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2.0 * sizeof(float) * count / seconds);
    from[static_cast<std::size_t>(repeat)] +=
        to[static_cast<std::size_t>(repeat)];  // no copy is like another
  }
  return best;
}

}  // namespace convnet::cpu::own
