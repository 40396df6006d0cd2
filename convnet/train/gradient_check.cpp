// --check-grads: the gradients that training uses against differences of the costs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "convnet/train/net.h"
#include "kernels/error.h"
#include "kernels/philox.h"

namespace convnet {
namespace {

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// A unit vector: along `gradient`, along it with random factors (there the derivative stands out of the
/// rounding), or any (so that wrong zeros show too).
std::vector<float> direction(int which, const std::vector<float>& gradient, std::uint64_t key) {
  std::vector<float> d = gradient;
  for (std::size_t i = 0; which > 0 && i < d.size(); ++i) {
    const float noise =
        element_normal(key, static_cast<std::uint64_t>(which), 0, static_cast<std::uint32_t>(i));
    d[i] = which == 1 ? d[i] * (1 + noise) : noise;
  }
  const double length = norm(d);
  for (float& v : d) v = length > 0 ? static_cast<float>(static_cast<double>(v) / length) : 0;
  return d;
}

constexpr double kTolerance = 2e-2;

/// Compares the derivative(0) along a line with differences of objective(distance) over several reaches.
/// Errors, beyond rounding, are relative to the larger of both and `least`. `length` is that of the weights.
template <class Objective, class Derivative>
GradientReport compare(double least, double length, const Objective& objective,
                       const Derivative& derivative) {
  const double analytic = derivative(0.0);
  // A sum of many fp32 terms: its last bits are noise.
  const double size = std::max(std::abs(objective(0.0)), 1e-3), rounding = 1e-6 * size;
  // Short steps drown in rounding, long ones meet kinks and curvature. Some move the objective, some the
  // weights, by a fraction of what they are.
  const double most = 0.1 * std::max(length, 0.1);
  std::vector<double> reaches;
  for (const double fraction : {1e-2, 1e-3, 1e-1}) {
    if (fraction * size < most * std::abs(analytic)) reaches.push_back(fraction * size / std::abs(analytic));
  }
  for (const double fraction : {1.0, 1e-1, 1e-2, 1e-3}) reaches.push_back(fraction * most);
  double best = INFINITY, at_most = INFINITY;
  bool wrong = false;
  for (const double reach : reaches) {
    const double numeric = (objective(reach) - objective(-reach)) / (2 * reach), noise = rounding / reach;
    const double scale = std::max({std::abs(numeric), std::abs(analytic), least});
    const double error = std::max(0.0, std::abs(numeric - analytic) - noise) / std::max(scale, noise);
    if (reach == most) at_most = error;
    if (noise > 0.05 * scale) continue;
    best = std::min(best, error);
    if (best < kTolerance) return {.verdict = Verdict::right, .error = best};
    // Where the derivative itself changes as much within the step, kinks or curvature explain the difference.
    const double unexplained = 0.25 * std::abs(numeric - analytic);
    wrong = wrong || (std::abs(derivative(reach) - analytic) < unexplained &&
                      std::abs(derivative(-reach) - analytic) < unexplained);
  }
  // Where rounding hides all, by the step with the least of it.
  if (std::isinf(best)) best = at_most;
  if (best < kTolerance) return {.verdict = Verdict::right, .error = best};
  return {.verdict = wrong ? Verdict::wrong : Verdict::unclear, .error = best};
}

}  // namespace

std::vector<GradientReport> Net::check_gradients(std::int64_t images, const StepInputs& inputs,
                                                 const std::function<bool()>& stopped) {
  const Plan& plan = prepare(Phase::check, images);
  const std::vector<WeightBuffers>& all = plans_.weights();
  std::vector<std::vector<float>> start;
  for (const WeightBuffers& w : all) start.push_back(executor_.read_weights(w));
  StepInputs still = inputs;
  for (Rates& r : still.rates) r = {};
  StepInputs moving = still;
  for (std::size_t i = 0; i < all.size(); ++i) moving.rates[i] = {1, 0, 0, static_cast<float>(images)};
  const auto restore = [&] {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::vector<float> zeros(start[i].size(), 0.0F);
      executor_.write_weights(all[i], start[i]);
      set_increment(all[i], zeros);
      executor_.write_shards(all[i], &UpdateShard::accumulator, zeros);
    }
  };
  std::vector<GradientReport> reports;
  const auto run = [&](const StepInputs& step) {
    if (stopped())
      throw RunError(fmt::format(
          "stopped when {} of the gradients were checked; nothing is known of the others", reports.size()));
    StepResult result = executor_.run(plan, step);
    if (!result.finite())
      throw RunError("a cost is not finite (NaN or infinity) while gradients are checked; " +
                     first_non_finite(Phase::check, images, step));
    return result;
  };
  const auto move = [&](std::size_t i, const std::vector<float>& d, double by) {
    std::vector<float> values = start[i];
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] = static_cast<float>(static_cast<double>(values[k]) + by * static_cast<double>(d[k]));
    executor_.write_weights(all[i], values);
  };
  // With rate 1 and nothing else the increment is minus the mean gradient.
  const auto descent = [&](std::size_t i) { return increment(all[i]); };

  restore();
  run(moving);
  std::vector<std::vector<float>> descents;
  for (std::size_t i = 0; i < all.size(); ++i)
    descents.push_back(!all[i].shards.empty() ? descent(i) : std::vector<float>());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!spec(all[i]).learned() || all[i].shards.empty()) continue;
    GradientReport report{.name = all[i].name};
    for (int which = 0; which < 3; ++which) {
      const std::vector<float> d = direction(which, descents[i], philox_key(1, all[i].name));
      if (norm(d) == 0) continue;
      restore();
      // What is minimised, per image: the first value of each cost, times its coefficient.
      const auto objective = [&](double by) {
        move(i, d, by);
        const StepResult result = run(still);
        double sum = 0;
        for (const CostSlot& c : plan.costs)
          sum += graph_.nodes[static_cast<std::size_t>(c.node)].layer->cost_coeff *
                 result.costs[static_cast<std::size_t>(c.slot)];
        return sum / static_cast<double>(images);
      };
      const auto derivative = [&](double by) {
        if (by == 0) return -dot(descents[i], d);
        move(i, d, by);
        run(moving);
        const double slope = -dot(descent(i), d);
        restore();
        return slope;
      };
      // Across the gradient little is left of it, and kinks count for more: errors are relative to all of it.
      const GradientReport one =
          compare(which == 2 ? norm(descents[i]) : 0, norm(start[i]), objective, derivative);
      report.verdict = std::max(report.verdict, one.verdict);
      report.error = std::max(report.error, one.error);
    }
    reports.push_back(std::move(report));
  }
  restore();
  return reports;
}

}  // namespace convnet
