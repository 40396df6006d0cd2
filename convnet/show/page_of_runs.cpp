// The page of several runs.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "convnet/net/costs.h"
#include "convnet/show/curves.h"
#include "convnet/show/page.h"
#include "convnet/show/page_parts.h"
#include "convnet/show/text.h"

namespace convnet {
namespace {

/// Returns the test series of a run's chart, or the training series if there were no tests.
Series series_of(const Chart& chart, const NamedRun& run, Color color) {
  Series series = chart.series.back();
  series.name = run.name;
  series.note = "";
  series.color = color;
  return series;
}

/// The curves of several runs, a chart for each value of a cost that one of them has.
std::string curves_of(const std::vector<NamedRun>& runs) {
  std::string body = note(
                         "Test values over epochs; of runs without tests those of training. Point at a curve "
                         "for its values.",
                         "note") +
                     kScaleButton;
  std::map<std::pair<std::string, std::string>, Chart> charts;
  std::vector<std::pair<std::string, std::string>> order;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Run& run = *runs[r].run;
    if (run.checkpoint.state.history.empty()) continue;
    for (const Node& node : run.graph.nodes) {
      if (!node.is_cost() || node.is_child) continue;
      const std::vector<std::string> names = node.layer->cost_names();
      for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i) {
        if (repeats_earlier(names, i)) continue;
        const Chart one = cost_chart(run.checkpoint.state, run.graph,
                                     {node.name, i, runs[r].smooth, run.options.data.train_range});
        const auto [chart, fresh] =
            charts.try_emplace({node.name, names[i]}, Chart{one.title, one.x_label, {}, one.unit});
        if (fresh) order.push_back(chart->first);
        chart->second.series.push_back(
            series_of(one, runs[r], palette::series[r % std::size(palette::series)]));
      }
    }
  }
  for (const auto& key : order) body += chart_element(charts.at(key));
  return body;
}

std::string cell(const std::string& text) { return "<td>" + html_escape(text) + "</td>"; }

/// A row for each run: how far it is, its best and its last test.
std::string table_of(const std::vector<NamedRun>& runs) {
  std::string rows =
      "<tr><th>run</th><th>trained until</th><th>first cost</th><th>best test error</th><th>last test "
      "error</th></tr>\n";
  for (const NamedRun& named : runs) {
    const Run& run = *named.run;
    const Position& at = run.checkpoint.state.position;
    const auto cost = std::find_if(run.graph.nodes.begin(), run.graph.nodes.end(),
                                   [](const Node& node) { return node.is_cost() && !node.is_child; });
    std::string best = "none", last = "none", name = "none";
    if (cost != run.graph.nodes.end() && !run.checkpoint.state.history.empty()) {
      name = cost->name;
      const std::size_t value = std::min<std::size_t>(1, cost->layer->cost_names().size() - 1);
      const Chart chart = cost_chart(run.checkpoint.state, run.graph,
                                     {cost->name, value, named.smooth, run.options.data.train_range});
      for (const Series& series : chart.series) {
        if (!series.name.starts_with("test")) continue;
        const auto least = std::min_element(series.points.begin(), series.points.end(),
                                            [](const Point& a, const Point& b) { return a.y < b.y; });
        best = fmt::format("{:.4g}{} ({})", least->y, chart.unit,
                           series.labels[static_cast<std::size_t>(least - series.points.begin())]);
        last = fmt::format("{:.4g}{}", series.points.back().y, chart.unit);
      }
    }
    rows += "<tr>" + cell(named.name) + cell(fmt::format("epoch {}, batch {}", at.epoch, at.batch)) +
            cell(name) + cell(best) + cell(last) + "</tr>\n";
  }
  return wide_table(rows, "names");
}

/// The options that differ, and the lines of both files that not all runs have.
std::string differences(const std::vector<NamedRun>& runs) {
  std::set<std::string> keys;
  for (const NamedRun& named : runs)
    for (const auto& [key, text] : named.run->checkpoint.options) keys.insert(key);
  const auto option = [](const Run& run, const std::string& key) -> std::string {
    const auto found = run.checkpoint.options.find(key);
    return found == run.checkpoint.options.end() ? "" : found->second;
  };
  std::string rows;
  const auto row = [&](const std::string& name, const auto& value) {
    std::set<std::string> different;
    for (const NamedRun& named : runs) different.insert(value(*named.run));
    if (different.size() < 2) return;
    rows += "<tr><th>" + html_escape(name) + "</th>";
    for (const NamedRun& named : runs) rows += cell(value(*named.run));
    rows += "</tr>\n";
  };
  for (const std::string& key : keys) {
    if (key != "save-file" && key != "save-path")
      row("--" + key, [&](const Run& run) { return option(run, key); });
  }
  const auto lines_not_shared = [&](std::string Checkpoint::*text) {
    std::map<std::string, std::set<const Run*>> having;
    const auto for_lines = [text](const Run& run, const auto& use) {
      const std::string& all = run.checkpoint.*text;
      for (std::size_t at = 0; at < all.size();) {
        const std::size_t end = std::min(all.find('\n', at), all.size());
        use(all.substr(at, end - at));
        at = end + 1;
      }
    };
    for (const NamedRun& named : runs)
      for_lines(*named.run, [&](const std::string& line) { having[line].insert(named.run); });
    return [&runs, for_lines, having](const Run& run) {
      constexpr std::size_t kMost = 12;
      std::string lines;
      std::size_t count = 0;
      for_lines(run, [&](const std::string& line) {
        if (line.empty() || having.at(line).size() == runs.size()) return;
        if (++count <= kMost) lines += (lines.empty() ? "" : "\n") + line;
      });
      return count > kMost ? lines + fmt::format("\nand {} more lines", count - kMost) : lines;
    };
  };
  row("layers", lines_not_shared(&Checkpoint::definition_text));
  row("parameters", lines_not_shared(&Checkpoint::parameters_text));
  if (rows.empty()) return note("The runs have the same options and files.");
  std::string head = "<tr><th></th>";
  for (const NamedRun& named : runs) head += "<th>" + html_escape(named.name) + "</th>";
  return wide_table(head + "</tr>\n" + rows, "lines");
}

}  // namespace

std::string html_page_of_runs(const std::vector<NamedRun>& runs) {
  std::string html = std::string(kPageBegins) + kPageHead;
  html += "<title>" + std::to_string(runs.size()) + " runs</title>\n</head>\n<body>\n<h1>" +
          std::to_string(runs.size()) + " runs</h1>\n";
  html += table_of(runs);
  html += section("Tests", curves_of(runs));
  html += section("Differences", differences(runs));
  html += kPageScript;
  return html + "</body>\n</html>\n";
}

}  // namespace convnet
