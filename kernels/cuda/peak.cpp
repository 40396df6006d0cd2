// Measures how fast a GPU is, for benchmarks and predictions.
#include "kernels/cuda/peak.h"

#include <algorithm>
#include <random>
#include <vector>

#include "convnet/base/median.h"
#include "kernels/cuda/form.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/sizes.h"
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
void fill_with_numbers(Queue& queue, DataType type, std::byte* memory, std::int64_t bytes,
                       std::uint32_t seed) {
  // The sign and the mantissa are random, of one f32 number or of two of bf16.
  const std::uint32_t random = type == DataType::bf16 ? 0x807F807FU : 0x807FFFFFU;
  const std::uint32_t exponent = type == DataType::bf16 ? 0x3F003F00U : 0x3F000000U;
  std::vector<std::uint32_t> block(std::size_t{1} << 20);
  std::mt19937 bits(seed);
  for (std::uint32_t& word : block) word = (static_cast<std::uint32_t>(bits()) & random) | exponent;
  std::int64_t filled = std::min(static_cast<std::int64_t>(block.size() * sizeof block[0]), bytes);
  queue.copy(memory, reinterpret_cast<const std::byte*>(block.data()), filled);
  // The device repeats the block: copies from the host would take longer than the products.
  for (; filled < bytes; filled = std::min(2 * filled, bytes))
    queue.copy(memory + filled, memory, std::min(filled, bytes - filled));
}

}  // namespace

PeakProduct::PeakProduct(Queue& queue, int device, Precision precision, std::int64_t side)
    : queue_(queue), side_(side), type_(product_type(precision)) {
  Areas areas;
  const std::int64_t matrix = side * side * size_of(type_);
  a_ = areas.add(matrix), b_ = areas.add(matrix), c_ = areas.add(matrix);
  memory_ = allocate_memory(device, areas.bytes());
  fill_with_numbers(queue, type_, memory_->data() + a_, matrix, 1);
  fill_with_numbers(queue, type_, memory_->data() + b_, matrix, 2);
  Gemm gemm;
  gemm.alignment = kArgumentAlignment;
  gemm.m = gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldc = side;
  gemm.factors = gemm.result = type_;
  product_ = prepare_gemm(gemm, {precision, device, nullptr});
  workspace_ = allocate_memory(device, product_->workspace_bytes());
}

void PeakProduct::run() const {
  std::byte* const memory = memory_->data();
  product_->run(&queue_, memory + a_, memory + b_, memory + c_, workspace_->data());
}

#if !defined(CONVNET_CUDA_EMULATED)  // loops of the host would take minutes
double measure_peak_flops(int device, Precision precision) {
  constexpr std::int64_t kSide = 8192;
  const auto queue = make_stream_queue(device);
  const PeakProduct product(*queue, device, precision, kSide);
  return product.flops() / seconds_of(*queue, [&] { product.run(); });
}

double measure_copy_bandwidth(int device) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 29;
  const auto queue = make_stream_queue(device);
  const auto from = allocate_memory(device, kBytes), to = allocate_memory(device, kBytes);
  const double seconds = seconds_of(*queue, [&] { queue->copy(to->data(), from->data(), kBytes); });
  return 2.0 * kBytes / seconds;
}
#endif

}  // namespace convnet::cuda
