// Compares a derivative with finite differences of a function whose values are known only to the precision of
// fp32.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace convnet {

enum class Verdict { right, unclear, wrong };

/// The result of comparing the gradient of one matrix with finite differences of the cost.
struct GradientReport {
  std::string name = {};
  Verdict verdict = Verdict::right;  ///< unclear: rounding or kinks make the differences in fp32 useless
  /// The largest error in three directions, beyond rounding, relative to the larger derivative.
  double error = 0;
};

/// A function along a line through the weights, and the derivative to be checked.
struct CheckedLine {
  std::function<double(double distance)> objective, derivative;
  double length = 0;   ///< norm of the weights; steps are long or short relative to it
  double least = 0;    ///< errors are relative to the larger derivative, but at least to this
  double stretch = 1;  ///< factor of the lengths of all steps
};

/// The verdict on one derivative.
struct Judgement {
  Verdict verdict = Verdict::right;
  double error = 0;   ///< as GradientReport::error
  double excess = 0;  ///< if it is wrong: (difference - derivative), relative to the larger of both
};

/// Compares the derivative at distance 0 with finite differences over steps of several lengths. A derivative
/// counts as wrong only if steps of two lengths agree that it is, on all parts of the way, beyond rounding
/// and curvature. At kinks and in saturated functions the differences contradict each other.
Judgement judge_derivative(const CheckedLine& line);

/// Returns the verdict on a derivative that was found wrong, given the results `elsewhere` of the same check
/// around other weights. It is wrong only if it is wrong in the same way there: rounding errors in a
/// saturated layer change from place to place, a mistake in the program does not.
Judgement confirmed(const Judgement& wrong, const std::vector<Judgement>& elsewhere);

}  // namespace convnet
