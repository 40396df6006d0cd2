#include <atomic>
#include <cstring>

#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu {

namespace {

/// The step for `count` weights; whether all are finite after it. A function of its own: on captured pointers
/// the compiler gathers and scatters.
bool step_piece(float* __restrict weights, float* __restrict increment, const float* __restrict gradient,
                std::int64_t count, float momentum, float decay, float step) {
  float poison = 0;  // NaN as soon as one weight is NaN or infinite
#pragma omp simd reduction(+ : poison)
  for (std::int64_t i = 0; i < count; ++i) {
    const float change = momentum * increment[i] - decay * weights[i] - step * gradient[i];
    const float weight = weights[i] + change;
    increment[i] = change;
    weights[i] = weight;
    poison += weight * 0;
  }
  return poison == 0;
}

}  // namespace

Prepared prepare(const Update& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op, op.what.layout),
      [count = op.what.bytes() / size_of(DataType::f32), images = op.images,
       rates_offset = step_block_bytes(op.rate_index)](std::span<std::byte* const> args) {
        Rates rates;
        std::memcpy(&rates, args[3] + rates_offset, sizeof rates);
        const bool broken = *reinterpret_cast<const double*>(args[4]) != 0;
        if (broken || images == 0) return;
        float* weights = as_floats(args[0]);
        float* increment = as_floats(args[1]);
        const float* gradient = as_floats(args[2]);
        const float momentum = rates.momentum;
        const float decay = rates.epsilon * rates.decay;
        const float step = rates.epsilon / static_cast<float>(images);
        std::atomic<bool> diverged = false;
        for_pieces(count, [=, &diverged](std::int64_t begin, std::int64_t end) {
          const bool finite = step_piece(weights + begin, increment + begin, gradient + begin, end - begin,
                                         momentum, decay, step);
          if (!finite) diverged = true;
        });
        if (diverged) *reinterpret_cast<double*>(args[4]) = 1;
      });
}

}  // namespace convnet::cpu
