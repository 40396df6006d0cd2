// Multinomial logistic cost: one pass over N x C numbers, in order, so that sums are reproducible.
#include <cmath>
#include <stdexcept>
#include <vector>

#include "kernels/cost_math.h"
#include "kernels/cpu/own_kernel.h"
#include "kernels/functors.h"

namespace convnet::cpu::own {
namespace {

/// Returns the targets of n images. Throws std::logic_error for a label that is no class: data providers
/// check labels, so this is a bug of the program.
std::vector<ClassTarget> checked_targets(const std::byte* memory, std::int64_t n, std::int64_t c,
                                         const ClassTargets& targets) {
  const ClassTargetReader reader{reinterpret_cast<const std::int32_t*>(memory),
                                 targets.class_weights.empty() ? nullptr : targets.class_weights.data(), c,
                                 targets.smoothing, targets.mixed};
  std::vector<ClassTarget> all;
  for (std::int64_t i = 0; i < n; ++i) {
    all.push_back(reader.at(i));
    if (!all.back().valid(c))
      throw std::logic_error("logreg: label " + std::to_string(all.back().first) + " or " +
                             std::to_string(all.back().second) + " of " + std::to_string(c) + " classes");
  }
  return all;
}

/// Ranks a label with probability `label_prob` among the classes.
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

/// Returns the sum of -t log p over the classes of an image.
double cost_of(const ClassTarget& t, const float* probs, std::int64_t c) {
  if (t.first == t.second && t.spread == 0) return -floored_log(static_cast<double>(probs[t.first]));
  double cost = 0;
  for (std::int64_t i = 0; i < c; ++i) cost -= weighted_log(t.of(i), static_cast<double>(probs[i]));
  return cost;
}

}  // namespace

Prepared prepare(const LogregForward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    double cost = 0, errors = 0, topk_errors = 0;
    bool finite = true;
    const float* probs = as_floats(args[1]);
    for (const ClassTarget& target : checked_targets(args[0], op.n, op.c, op.targets)) {
      const Ranking ranking = rank(probs, op.c, probs[target.label()]);
      const double cost_of_image = static_cast<double>(target.weight) * cost_of(target, probs, op.c);
      finite = finite && ranking.finite && std::isfinite(cost_of_image);
      cost += cost_of_image;
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
    const float* probs = as_floats(args[1]);
    float* diff = as_floats(args[2]);
    for (const ClassTarget& target : checked_targets(args[0], op.n, op.c, op.targets)) {
      const float coeff = op.coeff * target.weight;
      const auto set = [&](std::int64_t i) { diff[i] = -coeff * target.of(i) / floored(probs[i]); };
      if (target.spread > 0)
        for (std::int64_t i = 0; i < op.c; ++i) set(i);
      else
        std::fill(diff, diff + op.c, 0.0F);
      set(target.first);
      set(target.second);
      probs += op.c;
      diff += op.c;
    }
  });
}

Prepared prepare(const SoftmaxLogregBackward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const float* probs = as_floats(args[1]);
    float* diff = as_floats(args[2]);
    for (const ClassTarget& target : checked_targets(args[0], op.n, op.c, op.targets)) {
      const float coeff = op.coeff * target.weight, spread = target.spread;
#pragma omp simd
      for (std::int64_t i = 0; i < op.c; ++i) diff[i] = coeff * (probs[i] - spread);
      for (const std::int32_t i : {target.first, target.second}) diff[i] = coeff * (probs[i] - target.of(i));
      probs += op.c;
      diff += op.c;
    }
  });
}

}  // namespace convnet::cpu::own
