// Learning-rate schedules: const, linear, exp and dexp, as in cuda-convnet2, and cosine, poly and step. All
// but const, exp and dexp take a warm-up.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// The progress of training at the beginning of a minibatch, as learning-rate schedules see it.
struct TrainingProgress {
  TrainingProgress(double part = 0) : share(part) {}  // NOLINT(google-explicit-constructor): the usual one

  /// Returns the progress after `finished` batches of a run of `run_epochs` epochs with `batches` batches
  /// each.
  static TrainingProgress after(double finished, double batches, double run_epochs);

  double share;             ///< finished share of all batches of the run, in [0,1]
  double epochs = 0;        ///< finished epochs, with fractions
  double batch_epochs = 0;  ///< one batch, as a fraction of an epoch
  double minibatches = 0;   ///< number of finished minibatches
  double factor = 1;        ///< factor of all rates (--rate-factor, --plateau)
  bool warmed_up = false;   ///< leaves warm-ups out
};

/// A rate as a function of the progress of training.
class Schedule {
 public:
  enum class Kind { constant, linear, exponential, discrete_exponential, cosine, polynomial, step };

  Schedule() = default;
  explicit Schedule(double base) : base_(base) {}

  /// Reads "0.01", "const[base=b]", "linear[base=b;tgtFactor=f]", "exp[...]",
  /// "dexp[base=b;tgtFactor=f;numSteps=n]", "cosine[base=b]", "poly[base=b;power=k]",
  /// "step[base=b;at=30,60;factor=f]". Arguments may have any order. linear, cosine, poly and step also take
  /// warmup= and unit=, and cosine and poly take tgtFactor=. Throws std::invalid_argument with what is wrong
  /// and what is allowed.
  static Schedule parse(std::string_view text);

  /// Returns the rate, with the progress's factor.
  double at(const TrainingProgress& progress) const;
  double base() const { return base_; }
  /// Returns whether the base is 0, which freezes the matrix.
  bool frozen() const { return base_ == 0; }
  /// Returns the schedule as canonical text, for showing the values in effect.
  std::string str() const;

 private:
  double without_warmup(const TrainingProgress& progress) const;
  void set(const std::string& argument, const std::string& value);

  Kind kind_ = Kind::constant;
  double base_ = 0, target_factor_ = 1;
  int steps_ = 1;
  bool ends_at_zero_ = false;        ///< cosine and poly without tgtFactor
  double power_ = 1, factor_ = 0.1;  ///< poly's exponent; the factor of each step
  std::vector<double> at_;           ///< positions of the steps, ascending
  double warmup_ = 0;                ///< length of the warm-up, in which the rate grows from near 0
  bool in_minibatches_ = false;      ///< at_ and warmup_ count minibatches; else epochs
};

}  // namespace convnet
