#include "convnet/train/plateau.h"

#include <algorithm>
#include <optional>

#include "convnet/config/text.h"

namespace convnet {
namespace {

/// The least factor of learning rates: a denormal one would make the rates inexact, and one of 0 would end
/// training.
constexpr double kSmallest = 1e-30;

}  // namespace

std::string parse_plateau(const std::string& text, const ParamSpec&, PlateauOptions& out) {
  constexpr int kMostTests = 1'000'000'000;
  out = {};
  if (text.empty() || text == "0") return "";
  const std::vector<std::string> parts = split_list(text);
  const auto wrong = [&](const std::string& what) {
    return "expects FACTOR,TESTS or FACTOR,TESTS,LEAST, like 0.1,5, or 0 for none, not '" + text + "'" + what;
  };
  if (parts.size() != 2 && parts.size() != 3) return wrong("");
  const std::optional<double> factor = to_number<double>(parts[0]),
                              least = parts.size() == 3 ? to_number<double>(parts[2]) : 0;
  const std::optional<int> tests = to_number<int>(parts[1]);
  if (!factor || *factor < kSmallest || *factor >= 1) return wrong(": FACTOR is above 0 and below 1");
  if (!tests || *tests < 1 || *tests > kMostTests) return wrong(": TESTS is a whole number from 1 on");
  if (!least || *least < 0 || *least >= 1)
    return wrong(": LEAST, the least product of the factors, is from 0 on and below 1");
  out = {*factor, *tests, *least};
  return "";
}

std::string plateau_text(const PlateauOptions& options) {
  std::string text = format_number(options.factor) + "," + std::to_string(options.tests);
  if (options.least > 0) text += "," + format_number(options.least);
  return text;
}

bool note_plateau(Plateau& plateau, const PlateauOptions& options, bool is_best, const Position& at) {
  if (!options.on()) return false;
  plateau.tests_since = is_best ? 0 : plateau.tests_since + 1;
  if (plateau.tests_since < options.tests) return false;
  plateau.tests_since = 0;
  const double factor = std::max(plateau.factor() * options.factor, options.least);
  if (factor >= plateau.factor() || factor < kSmallest) return false;
  plateau.changes.push_back({at.epoch, at.batch, factor});
  return true;
}

void end_plateau(Plateau& plateau, const Position& at) {
  plateau.tests_since = 0;
  if (plateau.factor() != 1) plateau.changes.push_back({at.epoch, at.batch, 1});
}

}  // namespace convnet
