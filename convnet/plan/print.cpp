#include "convnet/plan/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "convnet/plan/hash.h"

namespace convnet {
namespace {

using nlohmann::json;

struct NodeWork {
  double forward_flops = 0, backward_flops = 0;
  std::int64_t bytes = 0;
  std::int64_t link_bytes = 0;  ///< fetched from other devices
};

/// Bytes by (from, to) in a minibatch. No device as the source stands for the host.
std::map<std::pair<DeviceId, DeviceId>, std::int64_t> bytes_of_links(const Plan& plan) {
  std::map<std::pair<DeviceId, DeviceId>, std::int64_t> links;
  for (const Task& task : plan.tasks) {
    for (const auto& [from, bytes] : bytes_fetched(plan, task)) links[{from, task.device}] += bytes;
  }
  return links;
}

Table<DeviceId, double> flops_of_devices(const Plan& plan) {
  Table<DeviceId, double> flops(plan.memory.size(), 0);
  for (const Task& task : plan.tasks) flops[task.device] += task.flops;
  return flops;
}

json memory_json(const Plan& plan, DeviceId device) {
  const DeviceMemoryNeeds& needs = plan.memory[device];
  const auto of = [&](std::initializer_list<BufferKind> kinds) {
    std::int64_t sum = 0;
    for (BufferKind kind : kinds) {
      const auto found = needs.by_kind.find(kind);
      if (found != needs.by_kind.end()) sum += found->second;
    }
    return sum;
  };
  const std::int64_t increments = of({BufferKind::increment, BufferKind::squares, BufferKind::average});
  const std::int64_t named =
      increments + of({BufferKind::weights, BufferKind::activation, BufferKind::gradient,
                       BufferKind::weights_gradient, BufferKind::workspace});
  return {{"weights", of({BufferKind::weights})},
          {"increments", increments},
          {"activations", of({BufferKind::activation})},
          {"gradients", of({BufferKind::gradient, BufferKind::weights_gradient})},
          {"workspace", of({BufferKind::workspace})},
          // Mean image, step block, costs, messages, and what placing the buffers leaves free between them.
          {"other", needs.persistent + needs.transient - named},
          {"total", needs.persistent + needs.transient}};
}

/// "f32 nChw16c".
std::string form_of(const TensorDesc& desc) {
  return std::string(to_string(desc.type)) + " " + desc.layout_name();
}

/// Why a reorder is there: who reads what it writes, in which form.
std::string reason_of(const Task& reorder, const Plan& plan, const Graph& graph) {
  const Buffer& from = plan.buffers[reorder.uses[0].buffer];
  const BufferId made = reorder.uses[1].buffer;
  for (const Task& task : plan.tasks) {
    const bool reads = std::any_of(task.uses.begin(), task.uses.end(), [&](const BufferUse& use) {
      return use.buffer == made && use.access != Access::write;
    });
    if (!reads) continue;
    const std::string of = task.node.exists() ? " of '" + graph.nodes[task.node].name + "'" : "";
    return work_name(task) + of + " reads " + form_of(plan.buffers[made].desc) + ", but '" + from.name +
           "' is " + form_of(from.desc);
  }
  return "";
}

json task_json(const Task& task, const Plan& plan, const Graph& graph) {
  json uses = json::array();
  for (const BufferUse& use : task.uses) {
    const Buffer& b = plan.buffers[use.buffer];
    uses.push_back({{"buffer", b.name},
                    {"access", use.access == Access::read    ? "read"
                               : use.access == Access::write ? "write"
                                                             : "read+write"},
                    {"dims", to_string(b.desc.dims)},
                    {"layout", b.desc.layout_name()}});
  }
  return {{"layer", task.node.exists() ? graph.nodes[task.node].name : ""},
          {"kind", to_string(task.kind)},
          {"op", work_name(task)},
          {"algorithm", task.form.algorithm},
          {"device", task.device.value()},
          {"stream", to_string(task.stream)},
          {"microbatch", task.microbatch},
          {"pass", task.pass},
          {"after", numbers_of(task.after)},
          {"flops", task.flops},
          {"bytes", task.bytes},
          {"why", task.kind == TaskKind::reorder ? reason_of(task, plan, graph) : ""},
          {"buffers", uses}};
}

}  // namespace

std::string scaled(double value) {
  constexpr std::array<const char*, 5> units = {"", " k", " M", " G", " T"};
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}{}", value, units[unit]);
}

json plan_json(const PlanSet& set, const Plan& train, const Plan& test, bool tasks) {
  const Graph& graph = set.graph();
  Table<NodeId, NodeWork> work(graph.nodes.size());
  for (const Task& task : train.tasks) {
    for (const LayerShare& share : layer_shares(train, task)) {
      if (!share.node.exists()) continue;
      NodeWork& w = work[share.node];
      (task.kind == TaskKind::forward ? w.forward_flops : w.backward_flops) += task.flops;
      w.bytes += share.bytes;
      w.link_bytes += share.fetched;
    }
  }
  json layers = json::array();
  double flops = 0;
  std::int64_t parameters = 0;
  for (const Node& node : graph.nodes) {
    std::int64_t count = 0, shared = 0;
    for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
      const WeightSpec& w = node.layer->weights[i];
      if (w.state) continue;
      const bool own = node.owners[i] == WeightOwner{node.id, i};
      (own ? count : shared) += element_count(w.dims);
    }
    const NodeWork& w = work[node.id];
    json inputs = json::array();
    for (const NodeId input : node.inputs) inputs.push_back(graph.nodes[input].name);
    layers.push_back({{"name", node.name},
                      {"type", node.type},
                      {"inputs", inputs},
                      {"output", node.layer->output.str()},
                      {"parameters", count},
                      {"shared_parameters", shared},
                      {"gpu", numbers_of(node.gpus)},
                      {"replicas", node.gpus.size()},
                      {"fused", node.fused},
                      {"forward_flops", w.forward_flops},
                      {"backward_flops", w.backward_flops},
                      {"update_period", node.layer->weights.empty() ? 0 : node.update_period},
                      {"bytes", w.bytes},
                      {"link_bytes", w.link_bytes}});
    flops += w.forward_flops + w.backward_flops;
    parameters += count;
  }
  json devices = json::array();
  const Table<DeviceId, double> device_flops = flops_of_devices(train);
  for (const DeviceId d : set.device_ids()) {
    devices.push_back({{"device", d.value()},
                       {"flops", device_flops[d]},
                       {"train", memory_json(train, d)},
                       {"test", memory_json(test, d)}});
  }
  std::vector<std::string> rewrites = graph.rewrites;
  rewrites.insert(rewrites.end(), train.rewrites.begin(), train.rewrites.end());
  json links = json::array();
  for (const auto& [link, bytes] : bytes_of_links(train)) {
    const auto& [source, to] = link;
    const json from = source.exists() ? json(source.value()) : json("host");
    links.push_back({{"from", from}, {"to", to.value()}, {"bytes", bytes}});
  }
  json microbatches = json::array();
  for (int m = 0; m < graph.microbatches; ++m) microbatches.push_back(graph.images_of(train.images, m));
  json plan = {{"backend", set.target().name()},
               {"images", train.images},
               {"microbatches", microbatches},
               {"passes", graph.passes},
               {"links", links},
               {"layers", layers},
               {"parameters", parameters},
               {"flops_per_step", flops},
               {"devices", devices},
               {"rewrites", rewrites},
               {"tasks", train.tasks.size()},
               {"hash", {{"train", hash_text(plan_hash(train))}, {"test", hash_text(plan_hash(test))}}}};
  if (train.topology.hosts() > 1) {
    plan["hosts"] = json::array();
    for (const DeviceId device : train.memory.ids()) plan["hosts"].push_back(train.topology.host(device));
  }
  if (tasks) {
    for (const auto& [key, p] : {std::pair{"train_tasks", &train}, std::pair{"test_tasks", &test}}) {
      plan[key] = json::array();
      for (const Task& task : p->tasks) plan[key].push_back(task_json(task, *p, graph));
    }
  }
  return plan;
}

namespace {

/// Returns "2 hosts, of devices 0 to 3, 4 to 7", from the host of each device.
std::string hosts_text(const json& hosts) {
  std::vector<std::string> ranges;
  for (std::size_t begin = 0; begin < hosts.size();) {
    std::size_t end = begin;
    while (end < hosts.size() && hosts[end] == hosts[begin]) ++end;
    ranges.push_back(end == begin + 1 ? fmt::format("{}", begin) : fmt::format("{} to {}", begin, end - 1));
    begin = end;
  }
  return fmt::format("{} hosts, of devices {}\n", ranges.size(), fmt::join(ranges, "; "));
}

/// Returns lines that say which images of a minibatch each device gets and what moves between devices; "" on
/// one device.
std::string parallel_text(const json& plan) {
  if (plan["devices"].size() == 1) return "";
  const auto sizes = plan["microbatches"].get<std::vector<std::int64_t>>();
  const int passes = plan["passes"].get<int>();
  std::string text =
      fmt::format("\n{} microbatch{} of {} images; {} pass{} a minibatch\n", sizes.size(),
                  sizes.size() == 1 ? "" : "es", fmt::join(sizes, ", "), passes, passes == 1 ? "" : "es");
  if (plan.contains("hosts")) text += hosts_text(plan["hosts"]);
  for (const json& d : plan["devices"])
    text +=
        fmt::format("device {}: {} FLOP a step\n", d["device"].get<int>(), scaled(d["flops"].get<double>()));
  text += "\nbytes a step, from (down) to (across)\n      ";
  for (const json& d : plan["devices"]) text += fmt::format(" {:>8}", d["device"].get<int>());
  constexpr int kHost = std::numeric_limits<int>::max();  // its row is the last
  std::map<int, std::map<int, double>> rows;
  for (const json& link : plan["links"]) {
    const int from = link["from"].is_string() ? kHost : link["from"].get<int>();
    rows[from][link["to"].get<int>()] = link["bytes"].get<double>();
  }
  for (const auto& [from, row] : rows) {
    text += fmt::format("\n{:>6}", from == kHost ? "host" : std::to_string(from));
    for (const json& d : plan["devices"]) {
      const auto found = row.find(d["device"].get<int>());
      text += fmt::format(" {:>8}", found == row.end() ? "-" : scaled(found->second));
    }
  }
  return text + "\n";
}

}  // namespace

std::string plan_text(const json& plan) {
  const bool several = plan["devices"].size() > 1;
  const auto row = [&](const std::string& name, const std::string& type, const std::string& output,
                       const std::string& parameters, const std::string& forward, const std::string& backward,
                       const std::string& bytes, const std::string& links, const std::string& gpu) {
    std::string line = fmt::format("{:<20} {:<12} {:>14} {:>12} {:>9} {:>9} {:>9}", name, type, output,
                                   parameters, forward, backward, bytes);
    if (several) line += fmt::format(" {:>9}", links);
    return line + fmt::format("  {}\n", gpu);
  };
  std::string text =
      row("layer", "type", "output", "parameters", "fwd FLOP", "bwd FLOP", "bytes", "link bytes", "gpu");
  for (const json& l : plan["layers"]) {
    std::string gpus = fmt::format("{}", fmt::join(l["gpu"].get<std::vector<int>>(), ","));
    const int period = l["update_period"].get<int>();
    if (period > 1) gpus += fmt::format(" (updates every {} passes)", period);
    if (period == 1 && plan["passes"].get<int>() > 1) gpus += " (updates every pass)";
    const auto number = [&](const char* key) {
      const double value = l[key].get<double>();
      return value == 0 ? std::string("-") : scaled(value);
    };
    // Shared weights are counted where their owner is.
    const auto own = l["parameters"].get<std::int64_t>();
    const char* none = l["shared_parameters"].get<std::int64_t>() > 0 ? "shared" : "-";
    text += row(l["name"].get<std::string>(), l["type"].get<std::string>(), l["output"].get<std::string>(),
                own == 0 ? none : std::to_string(own), number("forward_flops"), number("backward_flops"),
                number("bytes"), number("link_bytes"), gpus);
  }
  text += fmt::format("\n{} parameters; {} FLOP a step of {} images; {} tasks on backend {}\n",
                      plan["parameters"].get<std::int64_t>(), scaled(plan["flops_per_step"].get<double>()),
                      plan["images"].get<std::int64_t>(), plan["tasks"].get<std::size_t>(),
                      plan["backend"].get<std::string>());
  text += parallel_text(plan);
  text += "\nmemory, MiB       weights increments activations  gradients  workspace      other      total\n";
  for (const json& d : plan["devices"]) {
    for (const char* phase : {"train", "test"}) {
      text += fmt::format("device {} {:<6}", d["device"].get<int>(), phase);
      for (const char* kind :
           {"weights", "increments", "activations", "gradients", "workspace", "other", "total"})
        text += fmt::format(" {:>{}.1f}", d[phase][kind].get<double>() / (1 << 20),
                            std::string_view(kind) == "activations" ? 11 : 10);
      text += "\n";
    }
  }
  if (plan.contains("train_tasks")) {
    text += "\nrewrites:\n";
    for (const json& r : plan["rewrites"]) text += "  " + r.get<std::string>() + "\n";
    for (const char* phase : {"train_tasks", "test_tasks"}) {
      text += fmt::format("\n{}:\n", phase);
      int index = 0;
      for (const json& t : plan[phase]) {
        const auto waits = t["after"].get<std::vector<int>>();
        const std::string after = waits.empty() ? "" : fmt::format(" after {}", fmt::join(waits, ","));
        const std::string where =
            several ? fmt::format("{}:{} m{} p{} ", t["device"].get<int>(), t["stream"].get<std::string>(),
                                  t["microbatch"].get<int>(), t["pass"].get<int>())
                    : "";
        text += fmt::format("{:>4} {}{:<18} {:<10} {:<32} {}{}\n", index++, where,
                            t["layer"].get<std::string>(), t["kind"].get<std::string>(),
                            t["op"].get<std::string>(), t["algorithm"].get<std::string>(), after);
        const std::string why = t["why"].get<std::string>();
        if (!why.empty()) text += fmt::format("       why: {}\n", why);
        for (const json& b : t["buffers"])
          text += fmt::format("       {:<10} {} {} {}\n", b["access"].get<std::string>(),
                              b["buffer"].get<std::string>(), b["dims"].get<std::string>(),
                              b["layout"].get<std::string>());
      }
    }
  }
  return text;
}

}  // namespace convnet
