#include "convnet/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>

#include "convnet/plan/simulate.h"

namespace convnet {

void TimeUse::add(const Plan& plan, const TaskTimes& times, double wall) {
  const Table<DeviceId, DeviceShare> shares = device_shares(plan, times);
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

namespace {

/// Returns "2 on host a, 2 on host b".
std::string hosts_text(const Processes& processes) {
  std::vector<std::string> hosts;
  for (int r = 0; r < processes.count();) {
    int end = r;
    while (end < processes.count() && processes.host(end) == processes.host(r)) ++end;
    hosts.push_back(fmt::format("{} on host {}", end - r, processes.host(r)));
    r = end;
  }
  return join(hosts, ", ");
}

}  // namespace

std::string devices_text(const Net& net, const DeviceOptions& options, int minibatch) {
  const Graph& graph = net.graph();
  const int devices = net.plans().devices();
  std::vector<std::string> physical;
  for (const DeviceId d : net.plans().device_ids())
    physical.push_back(std::to_string(options.gpus()[d.index()]));
  const Processes* processes = net.executor().processes();
  const int own = used_here(options.topology(), devices, processes == nullptr ? 0 : processes->rank());
  std::string text = fmt::format("Devices: {}:{}, {} thread(s)", net.plans().target().name(),
                                 join(physical, ","), std::max(1, thread_count(options.threads) / own));
  if (devices > 1) text += " each";
  if (processes != nullptr)
    text += fmt::format(", in {} processes ({}{})", processes->count(), hosts_text(*processes),
                        net.executor().has_communicator() ? "; NCCL" : "");
  text += fmt::format("; minibatches of {} images", minibatch);
  if (graph.microbatches > 1)
    text += fmt::format(", {} a replica on {} replicas, in {} pass{}", graph.images_of(minibatch, 0),
                        graph.microbatches, graph.passes, graph.passes == 1 ? "" : "es");
  if (std::string reason; options.device == "auto" && cuda_devices(reason) == 0)
    text += "; no GPU: " + reason;
  return text;
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
    const Node& node = net.graph().nodes[w.node];
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
