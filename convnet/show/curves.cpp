#include "convnet/show/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <map>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "convnet/graph/whole_layers.h"
#include "convnet/net/costs.h"
#include "convnet/net/predictions.h"

namespace convnet {
namespace {

/// Returns the names of the costs that print their values: those that are no other cost's child.
std::vector<std::string> printed_costs(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    if (node.is_cost() && !node.is_child) names.push_back(node.name);
  }
  return names;
}

const Node& find_cost(const Graph& graph, const std::string& name) {
  const std::vector<std::string> names = printed_costs(graph);
  if (std::find(names.begin(), names.end(), name) != names.end()) return *graph.find(name);
  throw InputError("--show-cost: the net has no cost " + excerpt(name) +
                   did_you_mean(name, names, "its costs are " + join(names)));
}

/// History is read from a file: only the sums of this net's costs can be reported.
void check_entry(const HistoryEntry& entry, const Graph& graph) {
  const auto damaged = [&] {
    return InputError(fmt::format("the history is damaged: epoch {}, batch {} has other costs than the net",
                                  entry.epoch, entry.batch));
  };
  std::size_t costs = 0;
  for (const Node& node : graph.nodes) costs += node.is_cost() ? 1 : 0;
  if (entry.costs.sums.size() != costs) throw damaged();
  std::vector<std::string> seen;
  for (const auto& [name, sums] : entry.costs.sums) {
    const Node* node = graph.find(name);
    if (node == nullptr || !node->is_cost() ||
        sums.size() != static_cast<std::size_t>(node->layer->facts.cost->values) ||
        std::find(seen.begin(), seen.end(), name) != seen.end())
      throw damaged();
    seen.push_back(name);
  }
}

void check_history(const TrainingState& state) {
  if (state.history.empty())
    throw InputError("there is no history yet: the checkpoint was written before a batch was trained");
}

void check_finite(double value) {
  if (!std::isfinite(value) || std::abs(value) > 1e100)
    throw InputError("the history is damaged: it holds numbers that are not finite");
}

double value_of(const CostSums& costs, const Graph& graph, const CurveRequest& request) {
  for (const CostReport& report : cost_reports(costs, graph)) {
    if (report.node->name != request.cost) continue;
    const double value = report.values.at(request.value);
    check_finite(value);
    return value;
  }
  throw InputError("the history has no cost '" + request.cost + "'");
}

/// Epochs trained when a batch was finished.
double epochs_done(const HistoryEntry& entry, const BatchRange& range) {
  const double batches = static_cast<double>(entry.batch) - range.first + 1;
  return entry.epoch - 1.0 + std::clamp(batches / range.count(), 0.0, 1.0);
}

std::string last_value(const std::vector<Point>& points, const std::string& unit = "") {
  return points.empty() ? "" : fmt::format("{:.4g}{}", points.back().y, unit);
}

}  // namespace

Chart cost_chart(const TrainingState& state, const Graph& graph, const CurveRequest& request) {
  const Node& cost = find_cost(graph, request.cost);
  const std::vector<std::string> names = cost.layer->cost_names();
  if (request.value >= names.size()) {
    std::vector<std::string> listed;
    for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 12); ++i)
      listed.push_back(fmt::format("{} ({})", i, i > 0 && names[i] == names[i - 1] ? "the same" : names[i]));
    throw InputError(fmt::format("--cost-idx {}: '{}' has {} value{}: {}{}", request.value, cost.name,
                                 names.size(), names.size() == 1 ? "" : "s", join(listed),
                                 listed.size() < names.size() ? ", ..." : ""));
  }
  check_history(state);

  // Errors are fractions, which people read in percent.
  const bool in_percent = is_error(names[request.value]);
  const std::string unit = in_percent ? " %" : "";
  const auto value = [&](const CostSums& costs) {
    return (in_percent ? 100 : 1) * value_of(costs, graph, request);
  };
  Series train{"training", palette::train, {}, {}};
  Series test{"test", palette::test, {}, {}};
  std::deque<const HistoryEntry*> recent;
  std::int64_t tests = 0;  // that `recent` stands for
  for (const HistoryEntry& entry : state.history) {
    check_entry(entry, graph);
    std::string label = fmt::format("epoch {}, batch {}", entry.epoch, entry.batch);
    if (entry.count > 1)
      label += fmt::format(", mean of {} {}", entry.count, entry.test_batch < 0 ? "batches" : "tests");
    if (entry.test_batch < 0) {
      train.points.push_back({epochs_done(entry, request.train_range), value(entry.costs)});
      train.labels.push_back(label);
      continue;
    }
    recent.push_back(&entry);
    for (tests += entry.count; tests > request.smooth && recent.size() > 1; recent.pop_front())
      tests -= recent.front()->count;
    CostSums pooled;
    for (const HistoryEntry* one : recent) pool(pooled, one->costs);
    test.points.push_back({epochs_done(entry, request.train_range), value(pooled)});
    test.labels.push_back(label);
  }
  train.note = last_value(train.points, unit);
  test.note = last_value(test.points, unit);
  if (request.smooth > 1) test.note += fmt::format(", mean of {} tests", request.smooth);
  Chart chart{cost.name + ": " + names[request.value] + (in_percent ? " in %" : ""), "epochs", {}, unit};
  for (Series& s : std::vector<Series>{train, test}) {
    if (!s.points.empty()) chart.series.push_back(std::move(s));
  }
  return chart;
}

std::string costs_csv(const TrainingState& state, const Graph& graph) {
  check_history(state);
  std::string text = std::string(kCostsBegin) + "phase,images,layer,value name,value\n";
  for (const HistoryEntry& entry : state.history) {
    check_entry(entry, graph);
    const std::string place = fmt::format("{},{},{},{},", entry.epoch, entry.batch,
                                          entry.test_batch < 0 ? "train" : "test", entry.costs.images);
    for (const CostReport& report : cost_reports(entry.costs, graph)) {
      const std::vector<std::string> names = report.node->layer->cost_names();
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (repeats_earlier(names, i)) continue;
        check_finite(report.values.at(i));
        // The names of values are the program's own and need no quotes.
        text += place + fmt::format("{},{},{}\n", csv_field(report.node->name), names[i], report.values[i]);
      }
    }
  }
  return text;
}

namespace {

/// Returns the factor of all learning rates in a run after `done` batches of training.
double factor_after(const Plateau& plateau, double done, const BatchRange& train_range) {
  double factor = 1;
  for (const RateChange& change : plateau.changes) {
    const double at = (change.epoch - 1.0) * train_range.count() + change.batch - train_range.first + 1;
    if (at <= done) factor = change.factor;
  }
  return factor;
}

}  // namespace

Chart rate_chart(const TrainingState& state, const Graph& graph, const BatchRange& train_range, int epochs,
                 double factor) {
  constexpr int kSteps = 200;
  struct Group {
    const Schedule* schedule;
    std::string first;
    int more = 0;
  };
  std::map<std::string, Group> groups;  // by the schedule's text
  std::vector<std::string> order;
  for (const Node* layer : whole_layers(graph)) {
    const Node& node = *layer;
    for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
      const WeightSpec& spec = node.layer->weights[i];
      if (node.owners[i] != WeightOwner{node.id, i} || !graph.learns(node, i)) continue;
      const std::string text = spec.learning.epsilon.str();
      const auto [group, fresh] =
          groups.try_emplace(text, Group{&spec.learning.epsilon, node.layer_name + "." + spec.name});
      if (fresh)
        order.push_back(text);
      else
        ++group->second.more;
    }
  }
  Chart chart{"learning rates", "epochs", {}, ""};
  const Position& at = state.position;
  const double batches = train_range.count();
  const double finished =
      at.epoch == 0 ? 0
                    : (at.epoch - 1) * batches + std::clamp(at.batch - train_range.first + 1.0, 0.0, batches);
  if (finished <= 0) return chart;
  for (std::size_t g = 0; g < std::min(order.size(), std::size(palette::series)); ++g) {
    const Group& group = groups.at(order[g]);
    Series series{group.first, palette::series[g], {}, {}};
    for (int i = 0; i <= kSteps; ++i) {
      const double done = finished * i / kSteps;
      TrainingProgress progress = TrainingProgress::after(done, batches, epochs);
      progress.minibatches = static_cast<double>(state.iteration) * i / kSteps;
      progress.factor = factor * factor_after(state.plateau, done, train_range);
      series.points.push_back({done / batches, group.schedule->at(progress)});
      series.labels.push_back(fmt::format("epoch {:.2f}", done / batches));
    }
    if (group.more > 0) series.note = fmt::format("and {} more ", group.more);
    series.note += last_value(series.points);
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace convnet
