// Learning-rate schedules: const, linear, exp, dexp (REFERENCE.md §2).
#pragma once

#include <string>
#include <string_view>

namespace convnet {

/// A rate as a function of training progress p in [0,1].
class Schedule {
 public:
  enum class Kind { constant, linear, exponential, discrete_exponential };

  Schedule() = default;
  explicit Schedule(double base) : base_(base) {}

  /// Reads "0.01", "const[base=b]", "linear[base=b;tgtFactor=f]", "exp[...]",
  /// "dexp[base=b;tgtFactor=f;numSteps=n]". Arguments in any order. Throws std::invalid_argument with what is
  /// wrong and what is allowed.
  static Schedule parse(std::string_view text);

  double at(double progress) const;
  double base() const { return base_; }
  /// A schedule with base 0 freezes its matrix.
  bool frozen() const { return base_ == 0; }
  /// Canonical text, for the echo of effective values.
  std::string str() const;

 private:
  Kind kind_ = Kind::constant;
  double base_ = 0, target_factor_ = 1;
  int steps_ = 1;
};

}  // namespace convnet
