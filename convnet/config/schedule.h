// Learning-rate schedules: const, linear, exp and dexp, as in cuda-convnet2, and cosine, poly and step. All
// but const, exp and dexp take a warm-up.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// How far training is when a minibatch begins.
struct TrainingProgress {
  TrainingProgress(double part = 0) : share(part) {}  // NOLINT(google-explicit-constructor): the usual one

  /// Returns the progress after `finished` batches of a run of `run_epochs` epochs with `batches` batches
  /// each.
  static TrainingProgress after(double finished, double batches, double run_epochs);

  double share;             ///< finished batches of all, in [0,1]
  double epochs = 0;        ///< finished batches, in epochs
  double batch_epochs = 0;  ///< a batch, in epochs
  double minibatches = 0;   ///< finished minibatches
};

/// A rate as a function of the progress of training.
class Schedule {
 public:
  enum class Kind { constant, linear, exponential, discrete_exponential, cosine, polynomial, step };

  Schedule() = default;
  explicit Schedule(double base) : base_(base) {}

  /// Reads "0.01", "const[base=b]", "linear[base=b;tgtFactor=f]", "exp[...]",
  /// "dexp[base=b;tgtFactor=f;numSteps=n]", "cosine[base=b]", "poly[base=b;power=k]",
  /// "step[base=b;at=30,60;factor=f]". Arguments in any order; linear and the last three take warmup= and
  /// unit=, too, and cosine and poly tgtFactor=. Throws std::invalid_argument with what is wrong and what is
  /// allowed.
  static Schedule parse(std::string_view text);

  double at(const TrainingProgress& progress) const;
  double base() const { return base_; }
  /// A schedule with base 0 freezes its matrix.
  bool frozen() const { return base_ == 0; }
  /// Canonical text, for the echo of effective values.
  std::string str() const;

 private:
  double without_warmup(const TrainingProgress& progress) const;
  void set(const std::string& argument, const std::string& value);

  Kind kind_ = Kind::constant;
  double base_ = 0, target_factor_ = 1;
  int steps_ = 1;
  bool ends_at_zero_ = false;        ///< cosine and poly without tgtFactor
  double power_ = 1, factor_ = 0.1;  ///< of poly; of each step
  std::vector<double> at_;           ///< where steps are, ascending
  double warmup_ = 0;                ///< until then the rate grows from near 0
  bool in_minibatches_ = false;      ///< the unit of at_ and warmup_; else epochs
};

}  // namespace convnet
