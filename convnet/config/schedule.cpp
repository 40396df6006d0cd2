#include "convnet/config/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <vector>

#include "convnet/base/printable.h"
#include "convnet/config/diagnostics.h"
#include "convnet/config/text.h"

namespace convnet {

const std::vector<ScheduleArgument>& schedule_arguments() {
  static const std::vector<ScheduleArgument> all = {
      {"base", "b", "the rate at the beginning, after a warm-up; 0 freezes the matrix"},
      {"tgtFactor", "f", "the rate ends at b/f"},
      {"numSteps", "n", "number of steps"},
      {"power", "k", "exponent; 1 if not given"},
      {"at", "30,60", "epochs (or minibatches) at which the rate changes, ascending"},
      {"factor", "g", "factor of the rate at each entry of at; 0.1 if not given"},
      {"warmup", "w",
       "length of a warm-up: the rate is multiplied by the part of w that is done, until it is 1; the "
       "current batch (or minibatch) counts as done, so no step has a rate of 0"},
      {"unit", "epochs", "what at and warmup count: epochs, or with unit=minibatches minibatches"},
  };
  return all;
}

const ScheduleArgument& schedule_argument(const std::string& name) {
  return *std::find_if(schedule_arguments().begin(), schedule_arguments().end(),
                       [&](const ScheduleArgument& argument) { return argument.name == name; });
}

std::vector<std::string> ScheduleForm::arguments() const {
  std::vector<std::string> all = required;
  all.insert(all.end(), optional.begin(), optional.end());
  return all;
}

std::string ScheduleForm::usage() const {
  std::vector<std::string> written;
  for (const std::string& argument : required)
    written.push_back(argument + "=" + schedule_argument(argument).value);
  return name + "[" + join(written, ";") + "]";
}

const std::vector<ScheduleForm>& schedule_forms() {
  using Kind = Schedule::Kind;
  static const std::vector<ScheduleForm> all = {
      {"const", Kind::constant, {"base"}, {}, "b"},
      {"linear", Kind::linear, {"base", "tgtFactor"}, {"warmup", "unit"}, "b(1-p) + (b/f)p"},
      {"exp", Kind::exponential, {"base", "tgtFactor"}, {}, "b f^(-p)"},
      {"dexp",
       Kind::discrete_exponential,
       {"base", "tgtFactor", "numSteps"},
       {},
       "n steps from b down to b/f, each by the same factor; step i (1 to n) lasts while p <= i/n"},
      {"cosine",
       Kind::cosine,
       {"base"},
       {"tgtFactor", "warmup", "unit"},
       "b(1 + cos(pi p))/2, which ends at 0, or with tgtFactor at b/f"},
      {"poly",
       Kind::polynomial,
       {"base"},
       {"power", "tgtFactor", "warmup", "unit"},
       "b(1-p)^k, which ends at 0, or with tgtFactor at b/f"},
      {"step",
       Kind::step,
       {"base", "at"},
       {"factor", "warmup", "unit"},
       "b times g once for every entry of at that training has passed"},
  };
  return all;
}

namespace {

std::string hint(std::string_view word, const std::vector<std::string>& candidates) {
  return did_you_mean(word, candidates, "", typing_edits(word));
}

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

const ScheduleForm& find_form(std::string_view name, std::string_view text) {
  std::vector<std::string> names;
  for (const ScheduleForm& form : schedule_forms()) {
    if (lower(name) == form.name) return form;
    names.emplace_back(form.name);
  }
  fail(excerpt(text) + " is neither a number nor one of the schedules " + join(names) + ", " +
       kScheduleSyntax + hint(name, names));
}

/// Returns how messages show the required arguments: "exp[base=...;tgtFactor=...]".
std::string outline(const ScheduleForm& form) {
  return form.name + "[" + join(form.required, "=...;") + "=...]";
}

/// The arguments between the brackets, separated by ';'.
std::map<std::string, std::string> read_arguments(const ScheduleForm& form, std::string_view body) {
  std::map<std::string, std::string> found;
  while (!body.empty()) {
    const std::size_t end = std::min(body.find(';'), body.size());
    const std::string_view argument = trim(body.substr(0, end));
    body.remove_prefix(std::min(end + 1, body.size()));
    if (argument.empty()) continue;
    const std::size_t equals = std::min(argument.find('='), argument.size());
    const std::string_view written = trim(argument.substr(0, equals));
    const std::vector<std::string> known = form.arguments();
    const auto name = std::find_if(known.begin(), known.end(),
                                   [&](const std::string& each) { return lower(each) == lower(written); });
    if (name == known.end())
      fail(form.name + " has no argument " + excerpt(written) + ", it takes " + join(known) +
           hint(written, known));
    if (equals == argument.size()) fail(form.name + ": '" + *name + "' has no value");
    const std::string_view value = trim(argument.substr(equals + 1));
    if (value.find('=') != std::string_view::npos)
      fail(form.name + ": " + *name +
           " is followed by another argument without ';' between them: " + excerpt(argument));
    if (!found.emplace(*name, value).second) fail(form.name + ": '" + *name + "' is given twice");
  }
  for (const std::string& name : form.required)
    if (!found.contains(name)) fail(form.name + " needs " + name + ", as in " + outline(form));
  return found;
}

}  // namespace

TrainingProgress TrainingProgress::after(double finished, double batches, double run_epochs) {
  TrainingProgress progress(std::min(1.0, finished / (run_epochs * batches)));
  progress.epochs = finished / batches;
  progress.batch_epochs = 1 / batches;
  return progress;
}

Schedule Schedule::parse(std::string_view text) {
  text = trim(text);
  if (const auto number = to_number<double>(text)) return Schedule(*number);
  const std::size_t open = std::min(text.find('['), text.size());
  const ScheduleForm& form = find_form(trim(text.substr(0, open)), text);
  const std::string name = form.name;
  if (open == text.size() || text.back() != ']')
    fail(name + " is written " + outline(form) + ", not " + excerpt(text) +
         (open < text.size() && text.find(']') == std::string_view::npos
              ? ", which lacks a ']'; in a file, a ';' after a blank begins a comment"
              : ""));

  Schedule schedule;
  schedule.kind_ = form.kind;
  const auto arguments = read_arguments(form, text.substr(open + 1, text.size() - open - 2));
  const bool decays = form.kind == Kind::cosine || form.kind == Kind::polynomial;
  schedule.ends_at_zero_ = decays && !arguments.contains("tgtFactor");
  for (const auto& [argument, value] : arguments) {
    try {
      schedule.set(argument, value);
    } catch (const std::invalid_argument& expected) {
      fail(name + ": " + argument + " expects " + expected.what() + ", not " + excerpt(value));
    }
  }
  // A warm-up only lowers the rate, and between its first and its last value it goes one way.
  const bool steps = schedule.kind_ == Kind::step;
  const double last =
      steps ? schedule.base_ * std::pow(schedule.factor_, static_cast<double>(schedule.at_.size()))
            : schedule.base_ / schedule.target_factor_;
  constexpr double kLargestRate = std::numeric_limits<float>::max();
  // A base that is too large is refused as any other number is.
  if (std::abs(schedule.base_) <= kLargestRate && !(std::abs(last) <= kLargestRate))
    fail(name + ": the last rate, base" +
         (steps ? "*factor^" + std::to_string(schedule.at_.size()) : "/tgtFactor") +
         ", is larger than fp32 holds, 3.4e+38");
  return schedule;
}

namespace {

double number_of(const std::string& value, const char* expected, double least, bool open) {
  const auto number = to_number<double>(value);
  if (!number || *number < least || (open && *number == least)) fail(expected);
  return *number;
}

}  // namespace

/// Throws std::invalid_argument with what the argument expects.
void Schedule::set(const std::string& argument, const std::string& value) {
  if (argument == "base") {
    const auto number = to_number<double>(value);
    if (!number) fail("a number");
    base_ = *number;
  } else if (argument == "tgtFactor") {
    const auto number = to_number<double>(value);
    if (!number) fail("a number");
    // Its reciprocal is the rate's last factor, which must be finite as well.
    if (!(*number > 0) || !std::isfinite(1 / *number)) fail("a number above 0");
    target_factor_ = *number;
  } else if (argument == "numSteps") {
    const auto steps = to_number<int>(value);
    if (!steps || *steps < 1) fail("an integer of at least 1");
    steps_ = *steps;
  } else if (argument == "power") {
    power_ = number_of(value, "a number above 0", 0, true);
  } else if (argument == "factor") {
    factor_ = number_of(value, "a number above 0", 0, true);
  } else if (argument == "warmup") {
    warmup_ = number_of(value, "a number of epochs or minibatches, at least 0", 0, false);
  } else if (argument == "unit") {
    if (lower(value) != "epochs" && lower(value) != "minibatches") fail("epochs or minibatches");
    in_minibatches_ = lower(value) == "minibatches";
  } else {  // at
    for (std::string_view rest = value; !rest.empty();) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      const auto number = to_number<double>(trim(rest.substr(0, comma)));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      if (!number || !(*number > (at_.empty() ? 0 : at_.back())))
        fail("ascending numbers above 0, like 30,60,80");
      at_.push_back(*number);
    }
    if (at_.empty()) fail("ascending numbers above 0, like 30,60,80");
  }
}

double Schedule::at(const TrainingProgress& progress) const {
  const double rate = progress.factor * without_warmup(progress);
  if (warmup_ == 0 || progress.warmed_up) return rate;
  // The progress at the end of this minibatch (or of this batch, in epochs), so that no step has a rate of 0.
  const double reached = in_minibatches_ ? progress.minibatches + 1 : progress.epochs + progress.batch_epochs;
  return rate * std::clamp(reached / warmup_, 0.0, 1.0);
}

double Schedule::without_warmup(const TrainingProgress& progress) const {
  const double p = std::clamp(progress.share, 0.0, 1.0);
  const double end = ends_at_zero_ ? 0 : base_ / target_factor_;
  switch (kind_) {
    case Kind::constant: return base_;
    case Kind::linear: return base_ * (1 - p) + base_ / target_factor_ * p;
    case Kind::exponential: return base_ * std::pow(target_factor_, -p);
    case Kind::cosine: return end + (base_ - end) * (1 + std::cos(std::acos(-1.0) * p)) / 2;
    case Kind::polynomial: return end + (base_ - end) * std::pow(1 - p, power_);
    case Kind::step: {
      const double reached = in_minibatches_ ? progress.minibatches : progress.epochs;
      // Sums of parts of an epoch are rounded.
      constexpr double kRounding = 1e-9;
      const auto steps =
          std::count_if(at_.begin(), at_.end(), [&](double at) { return at <= reached + kRounding; });
      return base_ * std::pow(factor_, static_cast<double>(steps));
    }
    case Kind::discrete_exponential: break;
  }
  // The first step i with p <= (i+1)/n; the product's rounding may be one step off on either side.
  const double n = steps_;
  double i = std::clamp(std::ceil(p * n) - 1, 0.0, n - 1);
  if (i > 0 && p <= i / n) --i;
  if (i < n - 1 && p > (i + 1) / n) ++i;
  if (i >= n - 1) return base_ / target_factor_;
  return base_ * std::pow(target_factor_, -i / (n - 1));
}

std::string Schedule::str() const {
  if (kind_ == Kind::constant) return format_number(base_);
  const auto form = std::find_if(schedule_forms().begin(), schedule_forms().end(),
                                 [&](const ScheduleForm& f) { return f.kind == kind_; });
  std::string text = form->name + "[base=" + format_number(base_);
  const auto add = [&](const char* argument, const std::string& value) {
    text += std::string(";") + argument + "=" + value;
  };
  if (kind_ != Kind::step && !ends_at_zero_) add("tgtFactor", format_number(target_factor_));
  if (kind_ == Kind::discrete_exponential) add("numSteps", std::to_string(steps_));
  if (kind_ == Kind::polynomial) add("power", format_number(power_));
  if (kind_ == Kind::step) {
    std::vector<std::string> places;
    for (const double at : at_) places.push_back(format_number(at));
    add("at", join(places, ","));
    add("factor", format_number(factor_));
  }
  if (warmup_ > 0) add("warmup", format_number(warmup_));
  if (in_minibatches_) add("unit", "minibatches");
  return text + "]";
}

}  // namespace convnet
