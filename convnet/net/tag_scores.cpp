#include "convnet/net/tag_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "convnet/base/utf8.h"

namespace convnet {
namespace {

double f1_of(std::int64_t right, std::int64_t images, std::int64_t taken) {
  return images + taken == 0 ? 0 : 2 * static_cast<double>(right) / static_cast<double>(images + taken);
}

}  // namespace

std::string threshold_text(double threshold) {
  if (!(threshold > 0)) return "0";
  constexpr int kDigits = 9;  // those of a float
  const double scale = std::pow(10, kDigits - 1 - std::floor(std::log10(threshold)));
  return fmt::format("{:.{}g}", std::floor(threshold * scale) / scale, kDigits);
}

TagScores::TagScores(std::vector<std::string> names, double threshold)
    : names_(std::move(names)), threshold_(threshold), answers_(names_.size()) {}

void TagScores::add(std::span<const float> probabilities, std::span<const float> targets) {
  constexpr float kHalf = 0.5F;
  for (std::size_t tag = 0; tag < answers_.size(); ++tag)
    answers_[tag].push_back({probabilities[tag], targets[tag] >= kHalf});
}

TagScore TagScores::score(std::size_t tag) const {
  std::vector<Answer> sorted = answers_[tag];
  std::sort(sorted.begin(), sorted.end(),
            [](const Answer& a, const Answer& b) { return a.probability > b.probability; });
  TagScore score;
  score.tag = tag;
  score.images = std::count_if(sorted.begin(), sorted.end(), [](const Answer& a) { return a.is_there; });
  std::int64_t taken = 0, right = 0, right_before = 0;
  for (auto answer = sorted.begin(); answer != sorted.end();) {
    const float threshold = answer->probability;
    for (; answer != sorted.end() && answer->probability == threshold; ++answer) {
      ++taken;
      if (answer->is_there) ++right;
    }
    if (threshold >= threshold_) {
      score.taken = taken;
      score.right = right;
    }
    if (const double f1 = f1_of(right, score.images, taken); f1 > score.best_f1) {
      score.best_f1 = f1;
      score.best_threshold = threshold;
    }
    score.average_precision +=
        static_cast<double>(right - right_before) * static_cast<double>(right) / static_cast<double>(taken);
    right_before = right;
  }
  if (score.images > 0) score.average_precision /= static_cast<double>(score.images);
  return score;
}

TagResults TagScores::results() const {
  TagResults results;
  TagMeans& means = results.means;
  std::int64_t right = 0, images = 0, taken = 0;
  for (std::size_t tag = 0; tag < answers_.size(); ++tag) {
    const TagScore s = score(tag);
    right += s.right;
    images += s.images;
    taken += s.taken;
    if (s.images == 0) continue;
    ++means.tags;
    means.average_precision += s.average_precision;
    means.f1 += s.f1();
    results.tags.push_back(s);
  }
  const double count = std::max(1.0, static_cast<double>(means.tags));
  means.average_precision /= count;
  means.f1 /= count;
  means.pooled_f1 = f1_of(right, images, taken);
  return results;
}

std::string TagScores::table(std::size_t most) const {
  auto [rows, all] = results();
  std::stable_sort(rows.begin(), rows.end(), [](const TagScore& a, const TagScore& b) {
    return a.average_precision < b.average_precision;
  });
  const std::size_t left = rows.size() > most ? rows.size() - most : 0;
  rows.resize(rows.size() - left);
  std::size_t width = 0;
  for (const TagScore& row : rows) width = std::max(width, character_count(names_[row.tag]));
  std::string text =
      fmt::format("  {}  average precision  precision  recall      F1  images  best threshold\n",
                  std::string(width, ' '));
  for (const TagScore& row : rows)
    text += fmt::format("  {}{}  {:>17.4f}  {:>9.4f}  {:>6.4f}  {:>6.4f}  {:>6}  {} (F1 {:.4f})\n",
                        names_[row.tag], std::string(width - character_count(names_[row.tag]), ' '),
                        row.average_precision, row.precision(), row.recall(), row.f1(), row.images,
                        threshold_text(row.best_threshold), row.best_f1);
  if (left > 0) text += fmt::format("  and {} more tags; --json 1 has all\n", left);
  return text +
         fmt::format(
             "Means over {} tag{}: average precision (mAP) {:.4f}, F1 {:.4f}; F1 of all pairs {:.4f}\n",
             all.tags, all.tags == 1 ? "" : "s", all.average_precision, all.f1, all.pooled_f1);
}

}  // namespace convnet
