#include "convnet/net/gradient_judge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace convnet {
namespace {

/// A derivative is right if steps of two lengths have a relative error below this.
constexpr double kClose = 4e-3;
/// Without such steps it is right if the best step has a relative error below this, and none shows a mistake.
constexpr double kTolerance = 2e-2;

/// Differences over [-reach, reach].
struct Difference {
  double reach = 0, slope = 0;
};

class Judge {
 public:
  explicit Judge(const CheckedLine& line)
      : line_(line),
        analytic_(line.derivative(0)),
        here_(line.objective(0)),
        size_(std::max(std::abs(here_), 1e-3)),
        // A sum of many fp32 terms: its last bits are noise.
        rounding_(1e-6 * size_) {}

  Judgement judge() {
    std::vector<Difference> differences;
    for (const double reach : reaches()) {
      differences.push_back({reach, (line_.objective(reach) - line_.objective(-reach)) / (2 * reach)});
      if (is_close(differences.back())) close_.push_back(reach);
      if (several(close_)) return {.error = error_of(differences.back())};
    }
    measure_rounding();
    close_.clear();
    double best = INFINITY, worst = 0;
    std::vector<double> suspicious;  // reaches
    for (const Difference& d : differences) {
      if (is_close(d)) close_.push_back(d.reach);
      if (several(close_)) return {.error = error_of(d)};
      if (rounding_ / d.reach > 0.05 * scale_of(d.slope)) continue;
      best = std::min(best, error_of(d));
      worst = std::max(worst, error_of(d));
      if (error_of(d) > kClose) suspicious.push_back(d.reach);
    }
    // If rounding hides all of them, the longest step decides, because it suffers least.
    if (std::isinf(best)) best = error_of(*std::max_element(differences.begin(), differences.end(), shorter));
    if (wrong_over_several_of(suspicious)) {
      // A mistake shows over the shorter steps, too, if rounding cannot hide it there. What lies far away,
      // like a step of a saturated function, shows over the long ones only.
      const double least = *std::min_element(suspicious.begin(), suspicious.end());
      const bool contradicted = std::any_of(differences.begin(), differences.end(), [&](const Difference& d) {
        return d.reach < least &&
               std::abs(d.slope - analytic_) + rounding_ / d.reach < std::abs(excess_) * scale_of(d.slope);
      });
      if (contradicted) return {.verdict = Verdict::unclear, .error = worst};
      return {.verdict = Verdict::wrong, .error = best, .excess = excess_};
    }
    return {.verdict = best < kTolerance ? Verdict::right : Verdict::unclear, .error = best};
  }

 private:
  static bool shorter(const Difference& a, const Difference& b) { return a.reach < b.reach; }

  /// The lengths of steps. Short steps suffer from rounding, long ones from kinks and curvature. Some lengths
  /// change the objective by a fraction of its value, others the weights by a fraction of their norm.
  std::vector<double> reaches() const {
    const double longest = 0.1 * std::max(line_.length, 1.0);
    std::vector<double> all;
    for (const double fraction : {1e-2, 1e-3, 1e-1}) {
      if (fraction * size_ < longest * std::abs(analytic_))
        all.push_back(fraction * size_ / std::abs(analytic_));
    }
    for (const double fraction : {1e-1, 1.0, 1e-2, 1e-3}) all.push_back(fraction * longest);
    for (double& reach : all) reach *= line_.stretch;
    return all;
  }
  double scale_of(double slope) const {
    return std::max({std::abs(slope), std::abs(analytic_), line_.least});
  }
  bool is_close(const Difference& d) const {
    const double close = kClose * scale_of(d.slope);
    return std::abs(d.slope - analytic_) < close && rounding_ / d.reach < close;
  }
  /// Returns the relative error of the derivative that rounding does not explain.
  double error_of(const Difference& d) const {
    const double noise = rounding_ / d.reach;
    return std::max(0.0, std::abs(d.slope - analytic_) - noise) / std::max(scale_of(d.slope), noise);
  }

  /// Returns how far differences over short steps deviate from being proportional to the steps. The causes
  /// are rounding and the spacing of fp32 numbers far from 0.
  void measure_rounding() {
    const double longest = 1e-3 * std::max(line_.length, 1.0);
    const auto difference = [&](double part) {
      return line_.objective(part * longest) - line_.objective(-part * longest);
    };
    const double whole = difference(1);
    double most = 0;
    for (const double part : {0.1, 0.35, 0.7})
      most = std::max(most, std::abs(difference(part) - part * whole));
    rounding_ = std::max(2 * most, 2e-7 * size_);
  }

  /// Returns whether there are steps of lengths so different that curvature, rounding and kinks change from
  /// one to the other.
  static bool several(const std::vector<double>& reaches) {
    if (reaches.empty()) return false;
    const auto [least, most] = std::minmax_element(reaches.begin(), reaches.end());
    return *most >= 3 * *least;
  }

  bool wrong_over_several_of(const std::vector<double>& reaches) {
    std::vector<double> found;
    for (const double reach : reaches) {
      if (wrong_over(reach)) found.push_back(reach);
      if (several(found)) return true;
    }
    return false;
  }

  /// Returns whether the derivative differs from the differences over all quarters of [-reach, reach] alike,
  /// by more than rounding and its own changes within a quarter explain. Around a kink, or a step of a
  /// saturated function, some quarters fit and others do not.
  bool wrong_over(double reach) {
    constexpr std::array<double, 5> kPlaces = {-1, -0.5, 0, 0.5, 1};
    std::array<double, 5> value = {}, slope = {};
    for (std::size_t i = 0; i < kPlaces.size(); ++i) {
      const double at = kPlaces[i] * reach;
      value[i] = at == 0 ? here_ : line_.objective(at);
      slope[i] = at == 0 ? analytic_ : line_.derivative(at);
    }
    const double step = reach / 2;
    double least = INFINITY, most = -INFINITY;
    for (std::size_t i = 0; i + 1 < kPlaces.size(); ++i) {
      const double numeric = (value[i + 1] - value[i]) / step;
      // The mean slope of a parabola through this quarter's ends and the other end of its half.
      const double beyond = slope[i % 2 == 0 ? i + 2 : i - 1];
      const double near = slope[i % 2 == 0 ? i : i + 1], middle = slope[i % 2 == 0 ? i + 1 : i];
      const double difference = numeric - (5 * near + 8 * middle - beyond) / 12;
      const double explained =
          kClose * scale_of(numeric) + 0.1 * std::abs(slope[i + 1] - slope[i]) + rounding_ / step;
      excess_ = difference / scale_of(numeric);
      if (std::abs(difference) < explained) return false;
      least = std::min(least, difference);
      most = std::max(most, difference);
    }
    // All of one sign, and of one size.
    return least > 0 ? most < 2 * least : least > 2 * most && most < 0;
  }

  const CheckedLine& line_;
  const double analytic_, here_, size_;
  double rounding_;
  std::vector<double> close_;  ///< reaches whose differences are the derivative
  double excess_ = 0;          ///< as Judgement::excess
};

}  // namespace

Judgement judge_derivative(const CheckedLine& line) { return Judge(line).judge(); }

Judgement confirmed(const Judgement& wrong, const std::vector<Judgement>& elsewhere) {
  const bool same = std::all_of(elsewhere.begin(), elsewhere.end(), [&](const Judgement& other) {
    const double ratio = other.excess / wrong.excess;
    return other.verdict == Verdict::wrong && ratio > 0.4 && ratio < 2.5;
  });
  // The step with the least error may be one that rounding hides it in.
  if (same)
    return {.verdict = wrong.verdict,
            .error = std::max(wrong.error, std::abs(wrong.excess)),
            .excess = wrong.excess};
  return {.verdict = wrong.error < kTolerance ? Verdict::right : Verdict::unclear, .error = wrong.error};
}

}  // namespace convnet
