// What a GPU can do, for benchmarks and predictions.
#include <algorithm>
#include <vector>

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
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRuns / 2];
}

}  // namespace

double measure_peak_flops(int device, Precision precision) {
  constexpr std::int64_t kSide = 8192;
  const auto queue = make_stream_queue(device);
  const auto memory = allocate_memory(device, 3 * kSide * kSide * size_of(DataType::f32));
  auto* a = as_floats(memory->data());
  auto *b = a + kSide * kSide, *c = b + kSide * kSide;
  // Zeros would let the clock rise: all bytes 0x3c make floats of 0.0115.
  check(cudaMemsetAsync(a, 0x3c, 2 * kSide * kSide * sizeof(float), stream_of(queue.get()).handle),
        "filling memory");
  Gemm gemm;
  gemm.alignment = kArgumentAlignment;
  gemm.m = gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldc = kSide;
  const Context context{precision, nullptr};
  gemm.factors = gemm.result = product_type(context);
  const auto product = prepare_gemm(gemm, context);
  const auto workspace = allocate_memory(device, product->workspace_bytes());
  const double seconds =
      seconds_of(*queue, [&] { product->run(queue.get(), a, b, nullptr, c, workspace->data()); });
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
