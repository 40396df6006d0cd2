#include "convnet/config/schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <vector>

#include "convnet/config/diagnostics.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

struct Form {
  const char* name;
  Schedule::Kind kind;
  std::vector<std::string> arguments;  ///< all of them required
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"const", Schedule::Kind::constant, {"base"}},
      {"linear", Schedule::Kind::linear, {"base", "tgtFactor"}},
      {"exp", Schedule::Kind::exponential, {"base", "tgtFactor"}},
      {"dexp", Schedule::Kind::discrete_exponential, {"base", "tgtFactor", "numSteps"}},
  };
  return all;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string close = nearest(word, candidates, word.size() < 6 ? 1 : 2);
  return close.empty() ? "" : "; did you mean '" + close + "'?";
}

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

const Form& find_form(std::string_view name, std::string_view text) {
  std::vector<std::string> names;
  for (const Form& form : forms()) {
    if (lower(name) == form.name) return form;
    names.emplace_back(form.name);
  }
  fail(excerpt(text) + " is neither a number nor one of the schedules " + join(names) +
       did_you_mean(name, names));
}

/// The arguments between the brackets, separated by ';'.
std::map<std::string, std::string> read_arguments(const Form& form, std::string_view body) {
  std::map<std::string, std::string> found;
  while (!body.empty()) {
    const std::size_t end = std::min(body.find(';'), body.size());
    const std::string_view argument = trim(body.substr(0, end));
    body.remove_prefix(std::min(end + 1, body.size()));
    if (argument.empty()) continue;
    const std::size_t equals = std::min(argument.find('='), argument.size());
    const std::string_view written = trim(argument.substr(0, equals));
    const auto name = std::find_if(form.arguments.begin(), form.arguments.end(),
                                   [&](const std::string& known) { return lower(known) == lower(written); });
    if (name == form.arguments.end())
      fail(std::string(form.name) + " has no argument " + excerpt(written) + ", it takes " +
           join(form.arguments) + did_you_mean(written, form.arguments));
    if (equals == argument.size()) fail(std::string(form.name) + ": '" + *name + "' has no value");
    if (!found.emplace(*name, trim(argument.substr(equals + 1))).second)
      fail(std::string(form.name) + ": '" + *name + "' is given twice");
  }
  for (const std::string& name : form.arguments)
    if (!found.contains(name)) fail(std::string(form.name) + " needs " + name);
  return found;
}

}  // namespace

Schedule Schedule::parse(std::string_view text) {
  text = trim(text);
  if (const auto number = to_number<double>(text)) return Schedule(*number);
  const std::size_t open = std::min(text.find('['), text.size());
  const Form& form = find_form(trim(text.substr(0, open)), text);
  const std::string name = form.name;
  if (open == text.size() || text.back() != ']')
    fail(name + " is written " + name + "[" + join(form.arguments, "=...;") + "=...], not " + excerpt(text));

  Schedule schedule;
  schedule.kind_ = form.kind;
  for (const auto& [argument, value] : read_arguments(form, text.substr(open + 1, text.size() - open - 2))) {
    const auto wrong = [&, &key = argument, &given = value](const char* expected) {
      fail(name + ": " + key + " expects " + expected + ", not " + excerpt(given));
    };
    if (argument == "numSteps") {
      const auto steps = to_number<int>(value);
      if (!steps || *steps < 1) wrong("an integer of at least 1");
      schedule.steps_ = steps.value_or(1);
      continue;
    }
    const auto number = to_number<double>(value);
    if (!number) wrong("a number");
    if (argument == "base") {
      schedule.base_ = number.value_or(0);
    } else {
      // Its reciprocal is the rate's last factor, which must be finite as well.
      if (!(*number > 0) || !std::isfinite(1 / *number)) wrong("a number above 0");
      schedule.target_factor_ = number.value_or(1);
    }
  }
  if (!std::isfinite(schedule.base_ / schedule.target_factor_)) fail(name + ": base/tgtFactor is not finite");
  return schedule;
}

double Schedule::at(double progress) const {
  const double p = std::clamp(progress, 0.0, 1.0);
  switch (kind_) {
    case Kind::constant: return base_;
    case Kind::linear: return base_ * (1 - p) + base_ / target_factor_ * p;
    case Kind::exponential: return base_ * std::pow(target_factor_, -p);
    case Kind::discrete_exponential: break;
  }
  if (steps_ == 1) return base_;
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
  const bool stepped = kind_ == Kind::discrete_exponential;
  const char* name = stepped ? "dexp" : kind_ == Kind::linear ? "linear" : "exp";
  return std::string(name) + "[base=" + format_number(base_) + ";tgtFactor=" + format_number(target_factor_) +
         (stepped ? ";numSteps=" + std::to_string(steps_) : "") + "]";
}

}  // namespace convnet
