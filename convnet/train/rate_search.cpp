#include "convnet/train/rate_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "convnet/config/text.h"

namespace convnet {
namespace {

constexpr int kPerDecade = 16;            ///< minibatches while the factor grows to ten times itself
constexpr int kFirst = -4, kLast = 4;     ///< decimal logarithms of the factors
constexpr double kForgets = 0.8;          ///< weight of the old costs in the running average
constexpr double kExplodes = 3;           ///< rise of the average that ends a search, in first costs
constexpr int kReach = kPerDecade / 2;    ///< minibatches to each side that a fitted line takes into account
constexpr int kFewest = kPerDecade / 2;   ///< minibatches of a search that can suggest anything
constexpr double kLeastFall = 0.01;       ///< fall of the cost that suggests anything, in first costs
constexpr int kColumns = 64, kRows = 14;  ///< of the drawing

double factor_of(std::size_t minibatch) {
  return std::pow(10, kFirst + static_cast<double>(minibatch) / kPerDecade);
}

double rounded_to_two_digits(double value) { return *to_number<double>(fmt::format("{:.1e}", value)); }

/// A line that was fitted to the costs around a minibatch.
struct Line {
  double value = 0;  ///< at that minibatch
  double slope = 0;  ///< per decade of the factor
};

/// Fits a line to the costs around number `at` by least squares, in which near ones weigh more (tricube
/// weights, as in LOESS). Unlike a running average, it does not lag behind the costs.
Line fit(const std::vector<double>& costs, int at) {
  const int first = std::max(0, at - kReach),
            last = std::min(static_cast<int>(costs.size()) - 1, at + kReach);
  double sum = 0, x_sum = 0, y_sum = 0, xx = 0, xy = 0;
  for (int i = first; i <= last; ++i) {
    const double distance = std::abs(i - at) / (kReach + 1.0);
    const double weight = std::pow(1 - std::pow(distance, 3), 3);
    const double x = static_cast<double>(i - at) / kPerDecade, y = costs[static_cast<std::size_t>(i)];
    sum += weight;
    x_sum += weight * x;
    y_sum += weight * y;
    xx += weight * x * x;
    xy += weight * x * y;
  }
  const double spread = sum * xx - x_sum * x_sum;
  if (!(spread > 0)) return {y_sum / sum, 0};  // one minibatch
  const double slope = (sum * xy - x_sum * y_sum) / spread;
  return {(y_sum - slope * x_sum) / sum, slope};
}

}  // namespace

double RateSearch::factor() const { return factor_of(costs_.size()); }

int RateSearch::most_minibatches() { return (kLast - kFirst) * kPerDecade + 1; }

bool RateSearch::ended() const { return exploded_ || static_cast<int>(costs_.size()) >= most_minibatches(); }

double RateSearch::ceiling() const { return lowest_ + kExplodes * std::abs(costs_.at(0)); }

void RateSearch::add(double cost) {
  costs_.push_back(cost);
  if (costs_.size() == 1) average_ = lowest_ = cost;
  // The average begins with the first cost, so it needs no correction of a bias.
  average_ = kForgets * average_ + (1 - kForgets) * cost;
  exploded_ = !std::isfinite(cost) || (costs_.size() > 1 && average_ > ceiling());
  if (!exploded_) lowest_ = std::min(lowest_, average_);
}

std::vector<RateSearch::Point> RateSearch::curve() const {
  std::vector<double> costs;
  // A line fitted to the last costs should follow those before the explosion, too.
  for (const double cost : costs_)
    costs.push_back(std::isfinite(cost) ? std::min(cost, ceiling()) : ceiling());
  std::vector<Point> points;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const Line line = fit(costs, static_cast<int>(i));
    points.push_back({factor_of(i), costs[i], line.value, line.slope});
  }
  return points;
}

std::optional<RateSearch::Point> RateSearch::suggestion() const {
  const std::vector<Point> points = curve();
  if (static_cast<int>(points.size()) < kFewest) return std::nullopt;
  const auto lowest = std::min_element(
      points.begin(), points.end(), [](const Point& a, const Point& b) { return a.smoothed < b.smoothed; });
  // The noise is that of the costs before the lowest one: those of an explosion have another.
  double squares = 0, before = points[0].smoothed;
  for (auto point = points.begin(); point != lowest; ++point) {
    squares += (point->cost - point->smoothed) * (point->cost - point->smoothed);
    before = std::max(before, point->smoothed);
  }
  const auto count = static_cast<double>(std::max<std::ptrdiff_t>(1, lowest - points.begin()));
  const double noise = std::sqrt(squares / count);
  if (!(before - lowest->smoothed > std::max(noise, kLeastFall * std::abs(costs_[0])))) return std::nullopt;
  const auto steepest = std::min_element(points.begin(), lowest,
                                         [](const Point& a, const Point& b) { return a.slope < b.slope; });
  if (steepest == lowest || !(steepest->slope < 0)) return std::nullopt;
  Point found = *steepest;
  found.factor = rounded_to_two_digits(found.factor);
  return found;
}

std::string curve_text(const RateSearch& search) {
  const std::vector<RateSearch::Point> points = search.curve();
  if (points.empty() || !std::isfinite(points[0].cost)) return "";
  // The rise of an explosion would leave no room for the rest.
  double high = points[0].smoothed, low = high;
  for (const RateSearch::Point& p : points) low = std::min(low, p.smoothed);
  for (const RateSearch::Point& p : points)
    if (p.smoothed - low <= 2 * (points[0].smoothed - low)) high = std::max(high, p.smoothed);
  if (!(high > low)) high = low + std::max(1e-6, std::abs(low));
  std::vector<std::string> rows(kRows, std::string(kColumns, ' '));
  const auto column_of = [&](std::size_t i) {
    return points.size() == 1 ? 0 : i * (kColumns - 1) / (points.size() - 1);
  };
  const std::optional<RateSearch::Point> found = search.suggestion();
  std::size_t steepest = points.size();
  for (std::size_t i = 0; found && i < points.size(); ++i)
    if (points[i].slope == found->slope) steepest = i;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double height = (points[i].smoothed - low) / (high - low);
    if (height > 1 + 0.5 / kRows) continue;
    const auto row = static_cast<std::size_t>(std::lround((1 - std::min(height, 1.0)) * (kRows - 1)));
    char& cell = rows[row][column_of(i)];
    if (cell != 'o') cell = i == steepest ? 'o' : '*';
  }
  std::string text = "Cost by the factor of all learning rates, smoothed" +
                     std::string(found ? "; o: the steepest descent\n" : "\n");
  for (int row = 0; row < kRows; ++row) {
    const double value = high - (high - low) * row / (kRows - 1);
    std::string line = rows[static_cast<std::size_t>(row)];
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("{:>10} |{}\n", row % 3 == 0 || row + 1 == kRows ? fmt::format("{:.4g}", value) : "",
                        line);
  }
  text += std::string(11, ' ') + "+" + std::string(kColumns, '-') + "\n";
  std::string numbers(12 + kColumns + 2, ' ');
  std::size_t free_from = 0;
  for (std::size_t i = 0; i < points.size(); i += kPerDecade) {
    const std::string number = fmt::format("{:g}", rounded_to_two_digits(points[i].factor));
    const std::size_t at = 12 + column_of(i);
    if (at < free_from || at + number.size() > numbers.size()) continue;
    numbers.replace(at, number.size(), number);
    free_from = at + number.size() + 1;
  }
  numbers.erase(numbers.find_last_not_of(' ') + 1);
  return text + numbers + "\n";
}

std::string rates_json(const RateSearch& search, std::int64_t minibatch) {
  nlohmann::json results = {
      {"minibatch", minibatch}, {"exploded", search.exploded()}, {"rate_factor", nullptr}};
  if (const auto found = search.suggestion()) results["rate_factor"] = found->factor;
  results["curve"] = nlohmann::json::array();
  for (const RateSearch::Point& p : search.curve())
    results["curve"].push_back(
        {{"factor", p.factor}, {"cost", p.cost}, {"smoothed", p.smoothed}, {"slope", p.slope}});
  return results.dump(2);
}

}  // namespace convnet
