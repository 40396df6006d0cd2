// Judges a derivative by differences of the function, whose values are known to the precision of fp32 only.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace convnet {

enum class Verdict { right, unclear, wrong };

/// One matrix's analytic gradient against differences of the cost.
struct GradientReport {
  std::string name = {};
  Verdict verdict = Verdict::right;  ///< unclear: fp32 differences do not tell, for rounding and kinks
  double error = 0;  ///< the worst of three directions, beyond rounding, relative to the larger derivative
};

/// A function along a line through the weights, and what is claimed to be its derivative.
struct CheckedLine {
  std::function<double(double distance)> objective, derivative;
  double length = 0;   ///< norm of the weights, which says what a long step is
  double least = 0;    ///< errors are relative to the larger derivative, but at least to this
  double stretch = 1;  ///< factor of all steps' lengths
};

struct Judgement {
  Verdict verdict = Verdict::right;
  double error = 0;   ///< as GradientReport::error
  double excess = 0;  ///< differences minus derivative, relative to the larger of both; set where it is wrong
};

/// Compares the derivative at distance 0 with differences over steps of several lengths. A derivative is
/// wrong only where steps of two lengths agree that it is, on all parts of the way, beyond rounding and
/// curvature; kinks and saturated functions give differences that contradict each other.
Judgement judge_derivative(const CheckedLine& line);

/// Returns the verdict on a derivative that was found wrong, after the same check around other weights: it is
/// wrong only if it is wrong there in the same way. What fp32 makes of a saturated layer's derivative
/// changes from place to place, the mistake of a program does not.
Judgement confirmed(const Judgement& wrong, const std::vector<Judgement>& elsewhere);

}  // namespace convnet
