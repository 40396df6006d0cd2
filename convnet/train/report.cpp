#include "convnet/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>

#include "convnet/plan/simulate.h"

namespace convnet {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void TimeUse::add(const Plan& plan, const std::vector<TaskTime>& times, double wall) {
  const std::vector<DeviceShare> shares = device_shares(plan, times);
  for (const DeviceShare& share : shares) {
    compute += share.compute / static_cast<double>(shares.size());
    communication += share.communication / static_cast<double>(shares.size());
  }
  steps += wall;
}

std::string TimeUse::text(double wall) const {
  const double percent = 100 / std::max(wall, 1e-9);
  return fmt::format(
      "time: {:.1f}% compute, {:.1f}% communication, {:.1f}% devices waiting for each other, {:.1f}% waiting "
      "for "
      "data, {:.1f}% other",
      percent * compute, percent * communication, percent * std::max(0.0, steps - compute - communication),
      percent * data, percent * std::max(0.0, wall - steps - data));
}

CostSums no_costs(const Plan& plan, const Graph& graph) {
  CostSums costs;
  for (const CostSlot& c : plan.costs)
    costs.sums.emplace_back(graph.nodes[static_cast<std::size_t>(c.node)].name,
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
    for (int child : node.children) {
      const std::vector<double>& part = *by_name.at(graph.nodes[static_cast<std::size_t>(child)].name);
      for (std::size_t v = 0; v < total.size(); ++v) total[v] += part[v];
    }
    reports.push_back({&node, node.layer->cost_report(
                                  total, static_cast<double>(std::max<std::int64_t>(1, costs.images)))});
  }
  return reports;
}

std::vector<std::string> value_names(const Node& cost, const IniFile& parameters) {
  const auto count = static_cast<std::size_t>(cost.layer->cost_values);
  if (cost.type == "cost.logreg") {
    const IniSection* section = parameters.find(cost.section);
    const IniValue* topk = section == nullptr ? nullptr : section->find("topk");
    return {"-log p", "top-1 error", fmt::format("top-{} error", topk == nullptr ? "1" : topk->text)};
  }
  if (cost.type == "cost.crossent") return {"cross entropy", "top-1 error"};
  if (cost.type == "cost.bce" && !cost.children.empty()) return {"cross entropy"};
  if (cost.type == "cost.bce") return {"cross entropy", "outputs wrong", "top-1 error"};
  if (cost.type == "cost.sum2") return {"sum of squares"};
  std::vector<std::string> names = {"cross entropy", "outputs wrong"};
  for (std::size_t output = 0; 2 + 3 * output < count; ++output) {
    names.push_back(fmt::format("precision of output {}", output));
    names.push_back(fmt::format("recall of output {}", output));
  }
  return names;
}

double first_error(const CostSums& costs, const Graph& graph) {
  const std::vector<double> values = cost_reports(costs, graph).at(0).values;
  return values.size() > 1 ? values[1] : values.at(0);
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

std::string devices_text(const Net& net, const Options& options) {
  const Graph& graph = net.graph();
  const int devices = net.plans().devices();
  std::vector<std::string> physical;
  for (int d = 0; d < devices; ++d)
    physical.push_back(std::to_string(options.gpus()[static_cast<std::size_t>(d)]));
  std::string text = fmt::format("Devices: {}:{}, {} thread(s)", net.plans().backend().name(),
                                 join(physical, ","), std::max(1, thread_count(options) / devices));
  if (devices > 1) text += " each";
  text += fmt::format("; minibatches of {} images", options.mini);
  if (graph.microbatches > 1)
    text += fmt::format(", {} a replica on {} replicas, in {} pass{}", graph.images_of(options.mini, 0),
                        graph.microbatches, graph.passes, graph.passes == 1 ? "" : "es");
  if (std::string reason; options.device == "auto" && cuda_devices(reason) == 0)
    text += "; no GPU: " + reason;
  return text;
}

std::string dangling_links_text(const std::vector<std::string>& links) {
  if (links.empty()) return "";
  return fmt::format("warning: {} link(s) to images lead nowhere and are left out:\n  {}", links.size(),
                     fmt::join(links, "\n  "));
}

void print_weights(const Net& net) {
  // Parts of a matrix on several devices count as one.
  struct Sums {
    double weights = 0, increments = 0, count = 0;
  };
  std::map<std::string, Sums> sums;
  const auto magnitude = [](const std::vector<float>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0,
                           [](double sum, float v) { return sum + std::abs(static_cast<double>(v)); });
  };
  for (const WeightBuffers& w : net.plans().weights()) {
    Sums& s = sums[w.name];
    const std::vector<float> values = net.executor().read_weights(w);
    s.weights += magnitude(values);
    s.count += static_cast<double>(values.size());
    if (!w.shards.empty()) s.increments += magnitude(net.increment(w));
  }
  for (const WeightBuffers& w : net.plans().weights()) {
    const Node& node = net.graph().nodes[static_cast<std::size_t>(w.node)];
    const WeightSpec& spec = net.graph().weight({w.node, w.index});
    if (spec.first_output > 0) continue;
    const double count = std::max(1.0, sums[w.name].count);
    const double weights = sums[w.name].weights / count, increments = sums[w.name].increments / count;
    if (w.shards.empty()) {
      fmt::print("Layer '{}' {}: {:e}\n", node.whole, spec.name, weights);
    } else if (spec.name == "biases" || spec.name == "shift") {
      fmt::print("Layer '{}' biases: {:e} [{:e}]\n", node.whole, weights, increments);
    } else {
      fmt::print("Layer '{}' weights[{}]: {:e} [{:e}] [{:e}]\n", node.whole, w.index, weights, increments,
                 weights > 0 ? increments / weights : 0.0);
    }
  }
}

}  // namespace convnet
