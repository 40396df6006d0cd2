#include "convnet/net/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

namespace convnet {

CostSums no_costs(const Plan& plan, const Graph& graph) {
  CostSums costs;
  for (const CostSlot& c : plan.costs)
    costs.sums.emplace_back(graph.nodes[c.node].name,
                            std::vector<double>(static_cast<std::size_t>(c.values), 0.0));
  return costs;
}

bool same_layers(const CostSums& a, const CostSums& b) {
  return std::equal(
      a.sums.begin(), a.sums.end(), b.sums.begin(), b.sums.end(),
      [](const auto& x, const auto& y) { return x.first == y.first && x.second.size() == y.second.size(); });
}

void add_costs(CostSums& into, const Plan& plan, const Graph& graph, const std::vector<double>& costs,
               std::int64_t images) {
  if (into.sums.empty()) into = no_costs(plan, graph);
  for (std::size_t i = 0; i < plan.costs.size(); ++i) {
    for (std::size_t v = 0; v < into.sums[i].second.size(); ++v)
      into.sums[i].second[v] +=
          costs[static_cast<std::size_t>(plan.costs[i].slot) + v] / static_cast<double>(plan.views);
  }
  into.images += images / plan.views;
}

void pool(CostSums& into, const CostSums& from) {
  if (into.sums.empty()) {
    into = from;
    return;
  }
  into.images += from.images;
  for (std::size_t i = 0; i < std::min(into.sums.size(), from.sums.size()); ++i) {
    for (std::size_t v = 0; v < std::min(into.sums[i].second.size(), from.sums[i].second.size()); ++v)
      into.sums[i].second[v] += from.sums[i].second[v];
  }
}

std::vector<CostReport> cost_reports(const CostSums& costs, const Graph& graph) {
  std::map<std::string_view, const std::vector<double>*> by_name;
  for (const auto& [name, sums] : costs.sums) by_name[name] = &sums;
  std::vector<CostReport> reports;
  for (const auto& [name, sums] : costs.sums) {
    const Node& node = *graph.find(name);
    if (node.is_child) continue;
    std::vector<double> total = sums;
    for (const NodeId child : node.children) {
      const std::vector<double>& part = *by_name.at(graph.nodes[child].name);
      for (std::size_t v = 0; v < total.size(); ++v) total[v] += part[v];
    }
    reports.push_back({&node, node.layer->cost_report(
                                  total, static_cast<double>(std::max<std::int64_t>(1, costs.images)))});
  }
  return reports;
}

double first_error(const CostSums& costs, const Graph& graph) {
  const std::vector<double> values = cost_reports(costs, graph).at(0).values;
  return values.size() > 1 ? values[1] : values.at(0);
}

bool repeats_earlier(const std::vector<std::string>& names, std::size_t i) {
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(i);
  return std::find(names.begin(), end, names.at(i)) != end;
}

bool is_error(const std::string& name) { return name.ends_with("error"); }

std::string value_text(const std::string& name, double value) {
  return is_error(name) ? fmt::format("{:.2f} %", 100 * value) : fmt::format("{:.4f}", value);
}

std::string labelled_cost_text(const CostSums& costs, const Graph& graph, std::size_t most) {
  std::vector<std::string> texts;
  for (const CostReport& report : cost_reports(costs, graph)) {
    const std::vector<std::string> names = report.node->layer->cost_names();
    std::vector<std::string> values;
    for (std::size_t i = 0; i < std::min({names.size(), report.values.size(), most}); ++i) {
      if (!repeats_earlier(names, i))
        values.push_back(names[i] + " " + value_text(names[i], report.values[i]));
    }
    texts.push_back(report.node->name + ": " + join(values));
  }
  return join(texts, "; ");
}

std::string short_cost_text(const CostSums& costs, const Graph& graph) {
  constexpr std::size_t kMost = 2;
  const CostReport first = cost_reports(costs, graph).at(0);
  const std::vector<std::string> names = first.node->layer->cost_names();
  std::vector<std::string> values;
  for (std::size_t i = 0; i < std::min({names.size(), first.values.size(), kMost}); ++i)
    values.push_back(is_error(names[i]) ? fmt::format("{:.1f} %", 100 * first.values[i])
                                        : fmt::format("{:.3f}", first.values[i]));
  return first.node->name + " " + join(values);
}

std::string cost_text(const CostSums& costs, const Graph& graph) {
  std::vector<std::string> texts;
  for (const CostReport& report : cost_reports(costs, graph)) {
    std::vector<std::string> values;
    for (double v : report.values) values.push_back(fmt::format("{:.6f}", v));
    texts.push_back(report.node->name + ":  " + join(values));
  }
  return join(texts, " ");
}

}  // namespace convnet
