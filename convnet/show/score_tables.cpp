#include "convnet/show/score_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "convnet/show/text.h"

namespace convnet {
namespace {

constexpr std::size_t kMostRows = 1000;

std::string row(const std::string& name, const std::vector<std::string>& cells) {
  std::string text = "<tr><td>" + html_escape(name) + "</td>";
  for (const std::string& cell : cells) text += "<td>" + cell + "</td>";
  return text + "</tr>\n";
}

std::string more(std::size_t rows) {
  return rows <= kMostRows ? "" : row(fmt::format("and {} more", rows - kMostRows), {});
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

std::string tag_rows(const TagScores& scores) {
  const auto [tags, means] = scores.results();
  std::string rows =
      "<tr><th>tag</th><th>average precision</th><th>precision</th><th>recall</th><th>F1</th><th>images</th>"
      "<th>best F1</th><th>at threshold</th></tr>\n";
  for (std::size_t i = 0; i < std::min(tags.size(), kMostRows); ++i) {
    const TagScore& s = tags[i];
    rows += row(scores.names()[s.tag],
                {percent(s.average_precision), percent(s.precision()), percent(s.recall()), percent(s.f1()),
                 std::to_string(s.images), percent(s.best_f1), threshold_text(s.best_threshold)});
  }
  return rows + more(tags.size()) +
         row(fmt::format("mean of {} (mAP, F1)", means.tags),
             {percent(means.average_precision), "", "", percent(means.f1)}) +
         row("all pairs of an image and a tag", {"", "", "", percent(means.pooled_f1)});
}

std::string number_rows(const NumberScores& scores) {
  const std::vector<NumberScore> numbers = scores.by_number();
  const auto cells = [](const NumberScore& s) {
    return std::vector<std::string>{fmt::format("{:.4g}", s.root_mean_squared_error),
                                    fmt::format("{:.4g}", s.mean_absolute_error),
                                    s.r2 ? fmt::format("{:.4f}", *s.r2) : "-"};
  };
  std::string rows =
      "<tr><th>number</th><th>root mean squared error</th><th>mean absolute error</th><th>R²</th></tr>\n";
  for (std::size_t i = 0; i < std::min(numbers.size(), kMostRows); ++i)
    rows += row(scores.names()[i], cells(numbers[i]));
  rows += more(numbers.size());
  return numbers.size() > 1 ? rows + row("all", cells(NumberScores::means(numbers))) : rows;
}

}  // namespace convnet
