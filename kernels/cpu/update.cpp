// Updates of weights, and the flag that stops them.
#include <array>
#include <atomic>
#include <cstring>

#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {

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

bool broken(const std::byte* flag) {
  double value = 0;
  std::memcpy(&value, flag, sizeof value);
  return value != 0;
}

void set_broken(std::byte* flag, bool is) {
  const double value = is ? 1 : 0;
  std::memcpy(flag, &value, sizeof value);
}

/// The step of one part; `args` are its own. Whether all weights are finite after it.
bool update_part(const Update::Part& part, std::span<std::byte* const> args, const std::byte* step_block) {
  const auto gradients = static_cast<std::size_t>(part.gradients);
  Rates rates;
  std::memcpy(&rates, step_block + step_block_bytes(part.rate_index), sizeof rates);
  const float images = part.accumulates ? rates.images : static_cast<float>(part.images);
  const bool due = images > 0;
  const float decay = rates.epsilon * rates.decay;
  const float step = due ? rates.epsilon / images : 0;
  std::atomic<bool> finite = true;
  for_pieces(part.count, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t n = end - begin;
    const float* gradient = as_floats(args[2]) + begin;
    std::array<float, kPieceElements> sum;
    if (part.accumulates || gradients > 1) {
      // Starts from the accumulator, if there is one, so that the order of summation is fixed.
      const std::size_t first = part.accumulates ? 2 + gradients : 2;
      std::copy_n(as_floats(args[first]) + begin, n, sum.data());
      for (std::size_t g = part.accumulates ? 2 : 3; g < 2 + gradients; ++g)
        add_scaled(as_floats(args[g]) + begin, 1, n, sum.data());
      gradient = sum.data();
    }
    if (part.accumulates) {
      float* accumulator = as_floats(args[2 + gradients]) + begin;
      if (due)
        std::fill_n(accumulator, n, 0.0F);
      else
        std::copy_n(sum.data(), n, accumulator);
    }
    if (due && !step_piece(as_floats(args[0]) + begin, as_floats(args[1]) + begin, gradient, n,
                           rates.momentum, decay, step))
      finite = false;
  });
  return finite;
}

}  // namespace

Prepared prepare(const Update& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op), [parts = op.parts](std::span<std::byte* const> args) {
        const std::span<std::byte* const> shared = args.last(3);  // step broken costs
        if (broken(shared[1])) return;
        for (const Update::Part& part : parts) {
          if (part.images > 0 && !update_part(part, args, shared[0])) set_broken(shared[2], true);
          args = args.subspan(static_cast<std::size_t>(part.arguments()));
        }
      });
}

Prepared prepare(const AnyBroken& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [](std::span<std::byte* const> args) {
    set_broken(args.back(), std::any_of(args.begin(), args.end() - 1, broken));
  });
}

}  // namespace convnet::cpu::own
