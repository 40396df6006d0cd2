#include "convnet/net/number_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "convnet/base/utf8.h"
#include "convnet/net/predictions.h"

namespace convnet {

NumberScores::NumberScores(std::vector<std::string> names) : names_(std::move(names)), sums_(names_.size()) {}

void NumberScores::add(std::span<const float> outputs, std::span<const float> targets) {
  ++images_;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    Sums& sums = sums_[i];
    const double target = targets[i], error = outputs[i] - target, before = target - sums.mean;
    sums.squares += error * error;
    sums.absolutes += std::abs(error);
    sums.mean += before / static_cast<double>(images_);
    sums.squared_distances += before * (target - sums.mean);
  }
}

std::vector<NumberScore> NumberScores::by_number() const {
  const auto count = static_cast<double>(std::max<std::int64_t>(1, images_));
  std::vector<NumberScore> scores;
  for (const Sums& sums : sums_) {
    NumberScore score{std::sqrt(sums.squares / count), sums.absolutes / count, std::nullopt};
    if (sums.squared_distances > 0) score.r2 = 1 - sums.squares / sums.squared_distances;
    scores.push_back(score);
  }
  return scores;
}

NumberScore NumberScores::means(const std::vector<NumberScore>& scores) {
  double squares = 0, absolutes = 0, r2 = 0, with_r2 = 0;
  for (const NumberScore& score : scores) {
    squares += score.root_mean_squared_error * score.root_mean_squared_error;
    absolutes += score.mean_absolute_error;
    if (!score.r2) continue;
    r2 += *score.r2;
    ++with_r2;
  }
  const auto count = static_cast<double>(std::max<std::size_t>(1, scores.size()));
  NumberScore means{std::sqrt(squares / count), absolutes / count, std::nullopt};
  if (with_r2 > 0) means.r2 = r2 / with_r2;
  return means;
}

std::string NumberScores::table(std::size_t most) const {
  const std::vector<NumberScore> scores = by_number();
  const std::size_t shown = std::min(most, scores.size());
  constexpr const char* kAll = "all";
  std::size_t width = scores.size() > 1 ? character_count(kAll) : 0;
  for (std::size_t i = 0; i < shown; ++i) width = std::max(width, character_count(names_[i]));
  std::string text =
      fmt::format("  {}  root mean squared error  mean absolute error       R^2\n", std::string(width, ' '));
  const auto row = [&](const std::string& name, const NumberScore& score) {
    text += fmt::format("  {}{}  {:>23.6g}  {:>19.6g}  {:>8}\n", name,
                        std::string(width - character_count(name), ' '), score.root_mean_squared_error,
                        score.mean_absolute_error, score.r2 ? fmt::format("{:.4f}", *score.r2) : "-");
  };
  for (std::size_t i = 0; i < shown; ++i) row(names_[i], scores[i]);
  if (shown < scores.size())
    text += fmt::format("  and {} more numbers; --json 1 has all\n", scores.size() - shown);
  if (scores.size() > 1) row(kAll, means(scores));
  return text;
}

}  // namespace convnet
