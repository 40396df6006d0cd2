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

  /// Reads a number, or a schedule like "cosine[base=b;warmup=w]" (schedule_forms()). Arguments may have any
  /// order. Throws std::invalid_argument with what is wrong and what is allowed.
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

/// An argument of schedules, for help and the documentation.
struct ScheduleArgument {
  std::string name;
  std::string value;  ///< its value in formulas, "b", or an example, "30,60"
  std::string doc;    ///< its meaning, without a full stop
};
/// Returns all arguments that schedules have.
const std::vector<ScheduleArgument>& schedule_arguments();
/// Returns the argument of this name, which must be among them.
const ScheduleArgument& schedule_argument(const std::string& name);

/// A kind of schedule, as the parser, help and the documentation know it.
struct ScheduleForm {
  std::string name;
  Schedule::Kind kind;
  std::vector<std::string> required, optional;  ///< names of arguments
  std::string rate;                             ///< the rate, in the values of arguments and the progress p

  /// Returns all arguments, the required ones first.
  std::vector<std::string> arguments() const;
  /// Returns how it is written, with its required arguments: "linear[base=b;tgtFactor=f]".
  std::string usage() const;
};
/// Returns all kinds of schedules.
const std::vector<ScheduleForm>& schedule_forms();

/// Says in a message how a schedule is written, and where all of them are described.
inline constexpr const char* kScheduleSyntax =
    "written like cosine[base=0.1;warmup=5], with ';' between arguments (convnet help schedule)";

}  // namespace convnet
