// --check-grads: the gradients that training uses against differences of the costs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "convnet/base/error.h"
#include "convnet/base/philox.h"
#include "convnet/net/check_objective.h"
#include "convnet/net/net.h"

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

}  // namespace

/// A check of the gradients of a net: its weights move, and are put back at the end.
class Net::GradientCheck {
 public:
  GradientCheck(Net& net, std::int64_t images, const StepInputs& inputs, const std::function<bool()>& stopped)
      : net_(net),
        images_(images),
        stopped_(stopped),
        plan_(net.prepare(Phase::check, images)),
        all_(net.plans_.weights()),
        still_(inputs),
        costs_(plan_, net.graph_, net.executor_, still_) {
    for (const WeightBuffers& w : all_) start_.push_back(net_.executor_.read_weights(w));
    for (Rates& r : still_.rates) r = {};
    moving_ = still_;
    for (Rates& r : moving_.rates) r = {1, 0, 0, static_cast<float>(images)};
    begin_at(start_);
  }

  bool learns(std::size_t i) const { return net_.spec(all_[i]).learned() && !all_[i].shards.empty(); }

  /// Judges matrix `i` in three directions.
  GradientReport report(std::size_t i) {
    GradientReport report{.name = all_[i].name};
    for (int which = 0; which < 3; ++which) {
      Judgement one = judge(i, which);
      if (one.verdict == Verdict::wrong) one = confirmed(one, judge_elsewhere(i, which));
      report.verdict = std::max(report.verdict, one.verdict);
      report.error = std::max(report.error, one.error);
    }
    ++reported_;
    return report;
  }

  void end() { restore(start_); }

 private:
  using AllWeights = std::vector<std::vector<float>>;

  StepResult run(const StepInputs& step) {
    if (stopped_())
      throw RunError(fmt::format(
          "stopped when {} of the gradients were checked; nothing is known of the others", reported_));
    // Devices with queues are slower where something is called after each task.
    std::function<void(TaskId)> read;
    if (costs_.reads_outputs()) read = [this](TaskId t) { costs_.after_task(t); };
    StepResult result = net_.executor_.run(plan_, step, nullptr, read);
    if (!result.finite())
      throw RunError("a cost is not finite (NaN or infinity) while gradients are checked; " +
                     net_.first_non_finite(Phase::check, images_, step).text);
    return result;
  }

  void restore(const AllWeights& weights) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const std::vector<float> zeros(weights[i].size(), 0.0F);
      net_.executor_.write_weights(all_[i], weights[i]);
      net_.set_increment(all_[i], zeros);
      net_.executor_.write_shards(all_[i], &UpdateShard::accumulator, zeros);
    }
  }

  /// Sets the net's weights to `weights`, around which directions are judged, and finds the gradients there.
  void begin_at(AllWeights weights) {
    here_ = std::move(weights);
    restore(here_);
    run(moving_);
    costs_.hold_labels();
    descents_.clear();
    for (std::size_t i = 0; i < all_.size(); ++i)
      descents_.push_back(all_[i].shards.empty() ? std::vector<float>() : descent(i));
  }

  void move(std::size_t i, const std::vector<float>& d, double by) {
    std::vector<float> values = here_[i];
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] = static_cast<float>(static_cast<double>(values[k]) + by * static_cast<double>(d[k]));
    net_.executor_.write_weights(all_[i], values);
  }
  /// Returns minus the mean gradient, which is the increment where the rate is 1 and all else 0.
  std::vector<float> descent(std::size_t i) const { return net_.increment(all_[i]); }

  Judgement judge(std::size_t i, int which, double stretch = 1) {
    const std::vector<float> d = direction(which, descents_[i], philox_key(1, all_[i].name));
    if (norm(d) == 0) return {};
    restore(here_);
    const auto objective = [&](double by) {
      move(i, d, by);
      return costs_.value(run(still_));
    };
    const auto derivative = [&](double by) {
      if (by == 0) return -dot(descents_[i], d);
      move(i, d, by);
      run(moving_);
      const double slope = -dot(descent(i), d);
      restore(here_);
      return slope;
    };
    // A random direction is nearly orthogonal to the gradient: the derivative is small and kinks weigh more,
    // so errors are relative to the norm of the whole gradient.
    return judge_derivative(
        {objective, derivative, norm(here_[i]), which == 2 ? norm(descents_[i]) : 0, stretch});
  }

  /// Judges the same direction where all weights are a few percent larger or smaller. Steps are shorter
  /// there, because steps of the same length would be rounded in the same way.
  std::vector<Judgement> judge_elsewhere(std::size_t i, int which) {
    std::vector<Judgement> judgements;
    for (std::uint64_t place = 1; place <= 3; ++place) {
      AllWeights weights = start_;
      for (std::size_t w = 0; w < all_.size(); ++w) {
        if (!learns(w)) continue;
        const std::uint64_t key = philox_key(place, all_[w].name);
        for (std::size_t k = 0; k < weights[w].size(); ++k)
          weights[w][k] *= 1 + 0.05F * element_normal(key, 0, 0, static_cast<std::uint32_t>(k));
      }
      begin_at(std::move(weights));
      judgements.push_back(judge(i, which, std::pow(0.83, place)));
      if (judgements.back().verdict != Verdict::wrong) break;
    }
    begin_at(start_);
    return judgements;
  }

  Net& net_;
  const std::int64_t images_;
  const std::function<bool()>& stopped_;
  int reported_ = 0;  ///< number of matrices judged so far
  const Plan& plan_;
  const std::vector<WeightBuffers>& all_;
  StepInputs still_, moving_;
  CheckObjective costs_;
  AllWeights start_, here_, descents_;
};

std::vector<GradientReport> Net::check_gradients(std::int64_t images, const StepInputs& inputs,
                                                 const std::function<bool()>& stopped) {
  GradientCheck check(*this, images, inputs, stopped);
  std::vector<GradientReport> reports;
  for (std::size_t i = 0; i < plans_.weights().size(); ++i) {
    if (check.learns(i)) reports.push_back(check.report(i));
  }
  check.end();
  return reports;
}

}  // namespace convnet
