#include "convnet/plan/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "convnet/base/cores.h"
#include "convnet/base/share_work.h"
#include "convnet/graph/schedule.h"
#include "convnet/plan/hash.h"

namespace convnet {
namespace {

using nlohmann::json;

/// The work of a layer's tasks in a training step, on all devices together.
struct LayerWork {
  double forward_flops = 0, backward_flops = 0;
  std::int64_t bytes = 0;
  std::int64_t link_bytes = 0;  ///< fetched from other devices
};

Table<NodeId, LayerWork> work_of_layers(const Plan& plan, const Graph& graph) {
  Table<NodeId, LayerWork> work(graph.nodes.size());
  for (const Task& task : plan.tasks) {
    for (const LayerShare& share : layer_shares(plan, task)) {
      if (!share.node.exists()) continue;
      LayerWork& of_layer = work[share.node];
      (task.kind == TaskKind::forward ? of_layer.forward_flops : of_layer.backward_flops) +=
          share.part * task.flops;
      of_layer.bytes += share.bytes;
      of_layer.link_bytes += share.fetched;
    }
  }
  return work;
}

json layers_json(const Plan& plan, const Graph& graph) {
  const Table<NodeId, LayerWork> work = work_of_layers(plan, graph);
  json layers = json::array();
  for (const Node& node : graph.nodes) {
    std::int64_t parameters = 0, shared = 0;
    for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
      const WeightSpec& w = node.layer->weights[i];
      if (w.state) continue;
      const bool own = node.owners[i] == WeightOwner{node.id, i};
      (own ? parameters : shared) += element_count(w.dims);
    }
    const LayerWork& of_layer = work[node.id];
    json inputs = json::array();
    for (const NodeId input : node.inputs) inputs.push_back(graph.nodes[input].name);
    layers.push_back({{"name", node.name},
                      {"type", node.type},
                      {"inputs", inputs},
                      {"output", node.layer->output.str()},
                      {"parameters", parameters},
                      {"shared_parameters", shared},
                      {"gpu", numbers_of(node.gpus)},
                      {"replicas", node.gpus.size()},
                      {"fused", node.fused},
                      {"forward_flops", of_layer.forward_flops},
                      {"backward_flops", of_layer.backward_flops},
                      {"update_period", node.layer->weights.empty() ? 0 : node.update_period},
                      {"bytes", of_layer.bytes},
                      {"link_bytes", of_layer.link_bytes}});
  }
  return layers;
}

/// Returns the bytes that a step moves between each two devices, and from the host to each device.
json links_json(const Plan& plan) {
  std::map<std::pair<DeviceId, DeviceId>, std::int64_t> bytes_of;  // by (from, to); from no device: the host
  for (const Task& task : plan.tasks) {
    for (const auto& [from, bytes] : bytes_fetched(plan, task)) bytes_of[{from, task.device}] += bytes;
  }
  json links = json::array();
  for (const auto& [link, bytes] : bytes_of) {
    const auto& [source, to] = link;
    const json from = source.exists() ? json(source.value()) : json("host");
    links.push_back({{"from", from}, {"to", to.value()}, {"bytes", bytes}});
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
      increments + of({BufferKind::weights, BufferKind::rounded, BufferKind::activation, BufferKind::gradient,
                       BufferKind::weights_gradient, BufferKind::workspace});
  return {{"weights", of({BufferKind::weights, BufferKind::rounded})},
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
          {"algorithm", task.form->algorithm},
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
  const json layers = layers_json(train, graph);
  double flops = 0;
  std::int64_t parameters = 0;
  for (const json& layer : layers) {
    flops += layer["forward_flops"].get<double>() + layer["backward_flops"].get<double>();
    parameters += layer["parameters"].get<std::int64_t>();
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
  json microbatches = json::array();
  for (int m = 0; m < graph.microbatches; ++m) microbatches.push_back(graph.images_of(train.images, m));
  std::array<std::uint64_t, 2> hashes{};
  share_work(2, usable_cores(), [&](std::size_t i) { hashes[i] = plan_hash(i == 0 ? train : test); });
  json plan = {{"backend", set.target().name()},
               {"images", train.images},
               {"microbatches", microbatches},
               {"passes", graph.passes},
               {"pipeline_stages", pipeline_depth(graph)},
               {"links", links_json(train)},
               {"layers", layers},
               {"parameters", parameters},
               {"flops_per_step", flops},
               {"devices", devices},
               {"rewrites", rewrites},
               {"tasks", train.tasks.size()},
               {"hash", {{"train", hash_text(hashes[0])}, {"test", hash_text(hashes[1])}}}};
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

/// Returns "0,1,4-7", as --gpu and gpu= take it.
std::string ranges_text(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
    end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (end - begin < 3) end = begin + 1;
    parts.push_back(end == begin + 1 ? std::to_string(numbers[begin])
                                     : fmt::format("{}-{}", numbers[begin], numbers[end - 1]));
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

/// Devices about which a table says the same.
struct EqualDevices {
  std::vector<int> devices;
  json facts;

  std::string name() const { return (devices.size() == 1 ? "device " : "devices ") + ranges_text(devices); }
};

/// Groups the devices of a plan by what `facts` returns for them, in the order of their first devices.
template <class Facts>
std::vector<EqualDevices> equal_devices(const json& devices, const Facts& facts) {
  std::vector<EqualDevices> groups;
  for (const json& d : devices) {
    json of = facts(d);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const EqualDevices& known) { return known.facts == of; });
    if (group == groups.end()) group = groups.insert(group, {{}, std::move(of)});
    group->devices.push_back(d["device"].get<int>());
  }
  return groups;
}

/// Returns "2 hosts, of devices 0-3; 4-7", from the host of each device.
std::string hosts_text(const json& hosts) {
  std::map<int, std::vector<int>> devices;
  for (std::size_t d = 0; d < hosts.size(); ++d) devices[hosts[d].get<int>()].push_back(static_cast<int>(d));
  std::vector<std::string> ranges;
  for (const auto& [host, of] : devices) ranges.push_back(ranges_text(of));
  return fmt::format("{} hosts, of devices {}\n", ranges.size(), fmt::join(ranges, "; "));
}

/// Returns "4 microbatches of 32 images" or "4 microbatches of images: 3 of 11, 1 of 5".
std::string microbatches_text(const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> parts;
  for (auto begin = sizes.begin(), end = begin; begin != sizes.end(); begin = end) {
    end = std::find_if(begin, sizes.end(), [&](std::int64_t size) { return size != *begin; });
    parts.push_back(fmt::format("{} of {}", end - begin, *begin));
  }
  if (parts.size() > 1)
    return fmt::format("{} microbatches of images: {}", sizes.size(), fmt::join(parts, ", "));
  return fmt::format("{} microbatch{} of {} images", sizes.size(), sizes.size() == 1 ? "" : "es", sizes[0]);
}

/// Returns the bytes that move between each two devices, a row for each source.
std::string link_table(const json& plan) {
  std::string text = "\nbytes a step, from (down) to (across)\n      ";
  for (const json& d : plan["devices"]) text += fmt::format(" {:>8}", d["device"].get<int>());
  constexpr int host = std::numeric_limits<int>::max();  // its row comes last
  std::map<int, std::map<int, double>> rows;
  for (const json& link : plan["links"]) {
    const int from = link["from"].is_string() ? host : link["from"].get<int>();
    rows[from][link["to"].get<int>()] = link["bytes"].get<double>();
  }
  for (const auto& [from, row] : rows) {
    text += fmt::format("\n{:>6}", from == host ? "host" : std::to_string(from));
    for (const json& d : plan["devices"]) {
      const auto found = row.find(d["device"].get<int>());
      text += fmt::format(" {:>8}", found == row.end() ? "-" : scaled(found->second));
    }
  }
  return text + "\n";
}

/// Returns the bytes that each device reads, where a table of all pairs would be too large.
std::string link_sums(const json& plan) {
  const auto host_of = [&](int device) {
    return plan.contains("hosts") ? plan["hosts"][static_cast<std::size_t>(device)].get<int>() : 0;
  };
  std::map<int, std::array<double, 3>> sums;  // of memory of the host, of devices there, of other hosts
  for (const json& link : plan["links"]) {
    const int to = link["to"].get<int>();
    const std::size_t column = link["from"].is_string()                          ? 0
                               : host_of(link["from"].get<int>()) == host_of(to) ? 1
                                                                                 : 2;
    sums[to][column] += link["bytes"].get<double>();
  }
  std::string text = fmt::format("\n{:<24} {:>12} {:>14} {:>14}\n", "bytes a step that come", "from memory",
                                 "from its host", "from others");
  const auto row_of = [&](const json& d) {
    const auto& columns = sums[d["device"].get<int>()];
    return json{scaled(columns[0]), scaled(columns[1]), scaled(columns[2])};
  };
  for (const EqualDevices& group : equal_devices(plan["devices"], row_of)) {
    text +=
        fmt::format("{:<24} {:>12} {:>14} {:>14}\n", "to " + group.name(), group.facts[0].get<std::string>(),
                    group.facts[1].get<std::string>(), group.facts[2].get<std::string>());
  }
  return text;
}

/// Returns lines that say how a minibatch is cut and what moves between devices; "" where it is not cut, on
/// one device.
std::string parallel_text(const json& plan) {
  const auto microbatches = plan["microbatches"].get<std::vector<std::int64_t>>();
  if (microbatches.size() == 1 && plan["devices"].size() == 1) return "";
  const int passes = plan["passes"].get<int>(), stages = plan["pipeline_stages"].get<int>();
  std::string text = fmt::format("\n{}; {} pass{} a minibatch", microbatches_text(microbatches), passes,
                                 passes == 1 ? "" : "es");
  if (stages > 1) text += fmt::format("; a pipeline of {} stages", stages);
  text += "\n";
  if (plan["devices"].size() == 1) return text;
  if (plan.contains("hosts")) text += hosts_text(plan["hosts"]);
  const auto flops = [](const json& d) { return json(scaled(d["flops"].get<double>())); };
  for (const EqualDevices& group : equal_devices(plan["devices"], flops))
    text += fmt::format("{}: {} FLOP a step{}\n", group.name(), group.facts.get<std::string>(),
                        group.devices.size() == 1 ? "" : " each");
  constexpr std::size_t most_columns = 16;
  return text + (plan["devices"].size() <= most_columns ? link_table(plan) : link_sums(plan));
}

/// Returns the bytes of a device by what they are for, in training and in tests.
std::string memory_text(const json& plan) {
  constexpr std::array<const char*, 7> kinds = {"weights",   "increments", "activations", "gradients",
                                                "workspace", "other",      "total"};
  const auto row = [&](const json& d, const char* phase) {
    std::string text;
    for (const char* kind : kinds)
      text += fmt::format(" {:>{}.1f}", d[phase][kind].get<double>() / (1 << 20),
                          std::string_view(kind) == "activations" ? 11 : 10);
    return text;
  };
  const std::vector<EqualDevices> groups = equal_devices(plan["devices"], [&](const json& d) {
    return json{{"train", row(d, "train")}, {"test", row(d, "test")}};
  });
  std::size_t width = 14;
  for (const EqualDevices& group : groups) width = std::max(width, group.name().size() + 6);
  std::string text = fmt::format("\n{:<{}}", "memory, MiB", width);
  for (const char* kind : kinds) text += fmt::format(" {:>10}", kind);
  text += "\n";
  for (const EqualDevices& group : groups) {
    for (const char* phase : {"train", "test"})
      text +=
          fmt::format("{:<{}}{}\n", group.name() + " " + phase, width, group.facts[phase].get<std::string>());
  }
  return text;
}

/// Returns a row for each layer: its shape, parameters, and what its tasks do in a step.
std::string layer_table(const json& plan) {
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
    std::string gpus = ranges_text(l["gpu"].get<std::vector<int>>());
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
  return text;
}

/// Returns a line for a task, with the device, microbatch and pass if there are several devices; then a line
/// for each buffer that it uses.
std::string task_text(const json& task, int index, bool several) {
  const auto waits = task["after"].get<std::vector<int>>();
  const std::string after = waits.empty() ? "" : fmt::format(" after {}", fmt::join(waits, ","));
  const std::string where =
      several ? fmt::format("{}:{} m{} p{} ", task["device"].get<int>(), task["stream"].get<std::string>(),
                            task["microbatch"].get<int>(), task["pass"].get<int>())
              : "";
  std::string text = fmt::format("{:>4} {}{:<18} {:<10} {:<32} {}{}\n", index, where,
                                 task["layer"].get<std::string>(), task["kind"].get<std::string>(),
                                 task["op"].get<std::string>(), task["algorithm"].get<std::string>(), after);
  const std::string why = task["why"].get<std::string>();
  if (!why.empty()) text += fmt::format("       why: {}\n", why);
  for (const json& buffer : task["buffers"])
    text += fmt::format("       {:<10} {} {} {}\n", buffer["access"].get<std::string>(),
                        buffer["buffer"].get<std::string>(), buffer["dims"].get<std::string>(),
                        buffer["layout"].get<std::string>());
  return text;
}

}  // namespace

std::string plan_text(const json& plan) {
  std::string text = layer_table(plan);
  text += fmt::format("\n{} parameters; {} FLOP a step of {} images; {} tasks on backend {}\n",
                      plan["parameters"].get<std::int64_t>(), scaled(plan["flops_per_step"].get<double>()),
                      plan["images"].get<std::int64_t>(), plan["tasks"].get<std::size_t>(),
                      plan["backend"].get<std::string>());
  text += parallel_text(plan);
  text += memory_text(plan);
  if (plan.contains("train_tasks")) {
    text += "\nrewrites:\n";
    for (const json& r : plan["rewrites"]) text += "  " + r.get<std::string>() + "\n";
    for (const char* phase : {"train_tasks", "test_tasks"}) {
      text += fmt::format("\n{}:\n", phase);
      int index = 0;
      for (const json& task : plan[phase]) text += task_text(task, index++, plan["devices"].size() > 1);
    }
  }
  return text;
}

}  // namespace convnet
