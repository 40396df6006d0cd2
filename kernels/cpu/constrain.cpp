// Constraints on the rows of weight matrices. They work on plain weights: those with another layout are
// copied to the workspace and back.
#include <cmath>
#include <cstring>

#include "kernels/cpu/own_kernel.h"
#include "kernels/cpu/relayout.h"

namespace convnet::cpu::own {
namespace {

/// Calls body(segment) for the segments of a row, each of op.inner weights.
template <class Body>
void for_segments(const Constrain& op, std::int64_t group, float* weights, const Body& body) {
  for (std::int64_t outer = 0; outer < op.outer; ++outer)
    body(weights + (outer * op.groups + group) * op.inner);
}

/// Returns the sum of (w - from)^2 over a row.
double squares(const Constrain& op, std::int64_t group, float* weights, double from) {
  double sum = 0;
  for_segments(op, group, weights, [&](const float* w) {
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < op.inner; ++i) {
      const double d = static_cast<double>(w[i]) - from;
      sum += d * d;
    }
  });
  return sum;
}

double mean(const Constrain& op, std::int64_t group, float* weights) {
  double sum = 0;
  for_segments(op, group, weights, [&](const float* w) {
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < op.inner; ++i) sum += static_cast<double>(w[i]);
  });
  return sum / static_cast<double>(op.outer * op.inner);
}

void scale(const Constrain& op, std::int64_t group, double factor, float* weights) {
  for_segments(op, group, weights, [&](float* w) {
#pragma omp simd
    for (std::int64_t i = 0; i < op.inner; ++i) w[i] = static_cast<float>(static_cast<double>(w[i]) * factor);
  });
}

void constrain_row(const Constrain& op, std::int64_t group, float* weights) {
  if (op.norm_max > 0) {
    const double deviation = std::sqrt(squares(op, group, weights, mean(op, group, weights))) /
                             static_cast<double>(op.outer * op.inner);
    const double wanted =
        std::max(std::min(deviation, static_cast<double>(op.norm_max)), static_cast<double>(op.norm_min));
    // Equal weights have no deviation, however scaled.
    if (deviation > 0 && wanted != deviation) scale(op, group, wanted / deviation, weights);
  }
  if (op.ball > 0) {
    const double norm = std::sqrt(squares(op, group, weights, 0));
    const double wanted = static_cast<double>(op.ball);
    if (norm > 0 && !(op.shrink && norm <= wanted)) scale(op, group, wanted / norm, weights);
  }
}

}  // namespace

Prepared prepare(const Constrain& op, const LayoutHints& hints) {
  std::vector<TensorDesc> outer = argument_tensors(op);
  outer[0] = op.what;
  if (!hints.empty() && hints[0]) outer[0].layout = hints[0]->layout;
  const auto plain = std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    if (op.when_due) {
      Rates rates;
      std::memcpy(&rates, args[1] + step_block_bytes(op.rate_index), sizeof rates);
      if (rates.images == 0) return;
    }
    float* weights = as_floats(args[0]);
#pragma omp parallel for schedule(static) if (op.outer * op.groups * op.inner >= kParallelElements)
    for (std::int64_t group = 0; group < op.groups; ++group) constrain_row(op, group, weights);
  });
  return std::make_shared<RelaidOp>(op, plain, std::move(outer));
}

}  // namespace convnet::cpu::own
