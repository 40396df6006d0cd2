// Measures how fast a GPU is, for benchmarks and predictions.
#include <algorithm>
#include <random>
#include <vector>

#include "convnet/base/median.h"
#include "kernels/cuda/form.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/tuning.h"

namespace convnet::cuda {
namespace {

/// Seconds of `work` on a queue, the median of several runs after a first one.
template <class Work>
double seconds_of(Queue& queue, const Work& work) {
  constexpr int kRuns = 9;
  std::vector<double> seconds;
  for (int run = 0; run <= kRuns; ++run) {
    const auto begin = queue.mark();
    work();
    const auto end = queue.mark();
    wait_for(*end);
    if (run > 0) seconds.push_back(end->seconds_since(*begin));
  }
  return median(std::move(seconds));
}

/// Fills memory with numbers from 0.5 to 1 of both signs. Equal numbers, or zeros, switch fewer transistors,
/// so that the clock would be higher than in training.
void fill_with_numbers(Queue& queue, DataType type, std::byte* memory, std::int64_t bytes) {
  // The sign and the mantissa are random, of one f32 number or of two of bf16.
  const std::uint32_t random = type == DataType::bf16 ? 0x807F807FU : 0x807FFFFFU;
  const std::uint32_t exponent = type == DataType::bf16 ? 0x3F003F00U : 0x3F000000U;
  std::vector<std::uint32_t> block(std::size_t{1} << 20);
  std::mt19937 bits(1);
  for (std::uint32_t& word : block) word = (static_cast<std::uint32_t>(bits()) & random) | exponent;
  const auto size = static_cast<std::int64_t>(block.size() * sizeof block[0]);
  for (std::int64_t at = 0; at < bytes; at += size)
    queue.copy(memory + at, reinterpret_cast<const std::byte*>(block.data()), std::min(size, bytes - at));
}

}  // namespace

double measure_peak_flops(int device, Precision precision) {
  constexpr std::int64_t kSide = 8192;
  const auto queue = make_stream_queue(device);
  const auto memory = allocate_memory(device, 3 * kSide * kSide * size_of(DataType::f32));
  auto* a = as_floats(memory->data());
  auto *b = a + kSide * kSide, *c = b + kSide * kSide;
  Gemm gemm;
  gemm.alignment = kArgumentAlignment;
  gemm.m = gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldc = kSide;
  const Context context{precision, device, nullptr};
  gemm.factors = gemm.result = product_type(precision);
  fill_with_numbers(*queue, gemm.factors, memory->data(), 2 * kSide * kSide * size_of(DataType::f32));
  const auto product = prepare_gemm(gemm, context);
  const auto workspace = allocate_memory(device, product->workspace_bytes());
  const double seconds = seconds_of(*queue, [&] { product->run(queue.get(), a, b, c, workspace->data()); });
  return 2.0 * kSide * kSide * kSide / seconds;
}

double measure_copy_bandwidth(int device) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 29;
  const auto queue = make_stream_queue(device);
  const auto from = allocate_memory(device, kBytes), to = allocate_memory(device, kBytes);
  const double seconds = seconds_of(*queue, [&] { queue->copy(to->data(), from->data(), kBytes); });
  return 2.0 * kBytes / seconds;
}

}  // namespace convnet::cuda
