// Multinomial logistic cost. Its work is a pass over N x C numbers, done in order so that sums are
// reproducible.
#include <cmath>
#include <stdexcept>

#include "kernels/cost_math.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

/// The label of each image. Readers of data check labels: a wrong one here is a bug of ours.
std::span<const std::int32_t> checked_labels(const std::byte* memory, std::int64_t n, std::int64_t c) {
  const std::span labels(reinterpret_cast<const std::int32_t*>(memory), static_cast<std::size_t>(n));
  for (std::int32_t label : labels)
    if (label < 0 || label >= c) {
      throw std::logic_error("logreg: label " + std::to_string(label) + " of " + std::to_string(c) +
                             " classes");
    }
  return labels;
}

Ranking rank(const float* probs, std::int64_t c, float label_prob) {
  std::int64_t above = 0, tied = 0, finite = 0;
#pragma omp simd reduction(+ : above, tied, finite)
  for (std::int64_t i = 0; i < c; ++i) {
    above += probs[i] > label_prob ? 1 : 0;
    tied += probs[i] == label_prob ? 1 : 0;
    finite += probs[i] - probs[i] == 0 ? 1 : 0;
  }
  return {above, tied, finite == c};
}

}  // namespace

Prepared prepare(const LogregForward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const auto labels = checked_labels(args[0], op.n, op.c);
    double cost = 0, errors = 0, topk_errors = 0;
    bool finite = true;
    const float* probs = as_floats(args[1]);
    for (std::int32_t label : labels) {
      const Ranking ranking = rank(probs, op.c, probs[label]);
      const double log_prob = floored_log(static_cast<double>(probs[label]));
      finite = finite && ranking.finite && std::isfinite(log_prob);
      cost -= log_prob;
      errors += expected_error(ranking, 1);
      topk_errors += expected_error(ranking, op.topk);
      probs += op.c;
    }
    auto* costs = reinterpret_cast<double*>(args[2]);
    if (!finite) costs[0] = 1;
    costs[op.slot] += cost;
    costs[op.slot + 1] += errors;
    costs[op.slot + 2] += topk_errors;
  });
}

Prepared prepare(const LogregBackward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const auto labels = checked_labels(args[0], op.n, op.c);
    const float smallest = smallest_divisor();
    const float* probs = as_floats(args[1]);
    float* diff = as_floats(args[2]);
    std::fill(diff, diff + op.n * op.c, 0.0F);
    for (std::int32_t label : labels) {
      diff[label] = -op.coeff / floored(probs[label], smallest);
      probs += op.c;
      diff += op.c;
    }
  });
}

Prepared prepare(const SoftmaxLogregBackward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const auto labels = checked_labels(args[0], op.n, op.c);
    const float* probs = as_floats(args[1]);
    float* diff = as_floats(args[2]);
    for (std::int32_t label : labels) {
#pragma omp simd
      for (std::int64_t i = 0; i < op.c; ++i) diff[i] = op.coeff * probs[i];
      diff[label] = op.coeff * (probs[label] - 1);
      probs += op.c;
      diff += op.c;
    }
  });
}

}  // namespace convnet::cpu::own
