#include "convnet/plan/plan.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "convnet/base/names.h"

namespace convnet {

const char* to_string(TaskKind kind) {
  switch (kind) {
    case TaskKind::load: return "load";
    case TaskKind::forward: return "forward";
    case TaskKind::backward: return "backward";
    case TaskKind::update: return "update";
    case TaskKind::reorder: return "reorder";
    case TaskKind::accumulate: return "accumulate";
    case TaskKind::zero: return "zero";
    case TaskKind::copy: return "copy";
    case TaskKind::reduce: return "reduce";
    case TaskKind::reduce_scatter_update: return "reduce-scatter+update";
    case TaskKind::all_gather: return "all-gather";
    case TaskKind::send: return "send";
    case TaskKind::receive: break;
  }
  return "receive";
}

const char* to_string(Stream stream) {
  switch (stream) {
    case Stream::compute: return "compute";
    case Stream::copy: return "copy";
    case Stream::update: return "update";
    case Stream::relay: return "relay";
    case Stream::send: return "send";
    case Stream::receive: return "receive";
    case Stream::send_update: return "send update";
    case Stream::receive_update: break;
  }
  return "receive update";
}

int microbatches_per_update(const Graph& graph, const Node& owner, Phase phase) {
  if (phase == Phase::check) return graph.microbatches;
  return graph.microbatches / graph.passes * std::min(owner.update_period, graph.passes);
}

BufferId add_buffer(Table<BufferId, Buffer>& buffers, std::string name, BufferKind kind, DeviceId device,
                    TensorDesc desc) {
  Buffer b;
  b.name = std::move(name);
  b.kind = kind;
  b.device = device;
  b.bytes = desc.bytes();
  // Layouts know their own size; one of another type or shape would make the buffer too small.
  if (b.bytes / size_of(desc.type) < element_count(desc.dims))
    throw std::logic_error("plan: '" + b.name + "' is " + to_string(desc.dims) + " " + to_string(desc.type) +
                           ", but its layout has " + std::to_string(b.bytes) + " bytes");
  b.desc = std::move(desc);
  const BufferId id = buffers.next_id();
  buffers.push_back(std::move(b));
  return id;
}

int device_count(const Plan& plan) {
  DeviceId last;
  for (const Task& task : plan.tasks) last = std::max(last, task.device);
  for (const Buffer& buffer : plan.buffers) last = std::max(last, buffer.device);
  return last.value() + 1;
}

std::int64_t bytes_of(const Plan& plan, const BufferUse& use) {
  return use.bytes >= 0 ? use.bytes : plan.buffers[use.buffer].bytes;
}

std::map<DeviceId, std::int64_t> bytes_fetched(const Plan& plan, const Task& task) {
  std::map<DeviceId, std::int64_t> fetched;
  if (task.kind == TaskKind::receive) {
    std::int64_t& bytes = fetched[plan.tasks[task.partner].device];
    for (const BufferUse& use : task.uses) bytes += bytes_of(plan, use);
    return fetched;
  }
  for (const BufferUse& use : task.uses) {
    const Buffer& b = plan.buffers[use.buffer];
    const DeviceId from = b.kind == BufferKind::input ? DeviceId() : b.device;
    if (from != task.device) fetched[from] += bytes_of(plan, use);
  }
  return fetched;
}

std::vector<LayerShare> layer_shares(const Plan& plan, const Task& task) {
  std::vector<LayerShare> shares = {{task.node}};
  for (const BufferUse& use : task.uses) {
    const Buffer& b = plan.buffers[use.buffer];
    // A matrix's increments and gradients follow it, or its sum, in the list of arguments.
    if (!task.node.exists() && b.node.exists() && b.node != shares.back().node) {
      if (shares.back().bytes > 0) shares.emplace_back();
      shares.back().node = b.node;
    }
    shares.back().bytes += bytes_of(plan, use);
    const bool comes = task.kind == TaskKind::receive || b.device != task.device;
    if (b.kind != BufferKind::input && comes) shares.back().fetched += bytes_of(plan, use);
  }
  const auto bytes = static_cast<double>(task.bytes);
  for (LayerShare& share : shares)
    share.part = shares.size() == 1 ? 1 : static_cast<double>(share.bytes) / bytes;
  return shares;
}

std::vector<TaskId> causes(const Task& task) {
  std::vector<TaskId> tasks = task.after;
  if (task.kind == TaskKind::receive) tasks.push_back(task.partner);
  return tasks;
}

std::string work_name(const Task& task) {
  return is_message(task.kind) ? to_string(task.kind) : op_name(*task.op);
}

std::string describe(const Plan& plan, const Task& task, const Graph& graph) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  if (task.node.exists()) add(graph.nodes[task.node].name);
  for (const BufferUse& use : task.uses) {
    // Damaged plans are described, too.
    if (task.node.exists() || !plan.buffers.has(use.buffer)) continue;
    const Buffer& b = plan.buffers[use.buffer];
    if (is_message(task.kind))
      add(b.name);
    else if (use.access != Access::read && graph.nodes.has(b.node))
      add(graph.nodes[b.node].name);
  }
  const std::size_t more = names.size() > kNamed ? names.size() - kNamed : 0;
  names.resize(names.size() - more);
  std::string text = join(names);
  if (more > 0) text += " and " + std::to_string(more) + " more";
  return (text.empty() ? "" : text + " ") + to_string(task.kind) +
         (is_message(task.kind) ? "" : ": " + op_name(*task.op)) + ", device " +
         std::to_string(task.device.value());
}

}  // namespace convnet
