#include "convnet/runtime/bound_plan.h"

#include "convnet/base/error.h"

namespace convnet {
namespace {

/// Prepares the operation of a task. If the backend cannot, its error gets the layer's name.
std::shared_ptr<const PreparedOp> bind(const Task& task, const Graph& graph, const Backend& backend,
                                       int device) {
  try {
    return backend.bind(*task.op, *task.form, device);
  } catch (const DeviceError& e) {
    if (!task.node.exists()) throw;
    throw DeviceError(graph.nodes[task.node].place_text() + ": " + e.what());
  }
}

}  // namespace

BoundPlan::BoundPlan(const Plan& plan, const Graph& graph, const Backend& backend,
                     const Table<DeviceId, int>& physical, int process)
    : plan_(plan), graph_(graph), queues_(plan.memory.size()), waited_for_(plan.tasks.size(), false) {
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    const bool runs_here = plan.topology.process(task.device) == process && !is_message(task.kind);
    ops_.push_back(runs_here ? bind(task, graph, backend, physical[task.device]) : nullptr);
    queues_.at(task.device).at(static_cast<std::size_t>(task.stream)).push_back(t);
    for (const TaskId after : task.after) {
      const Task& earlier = plan.tasks[after];
      if (earlier.device != task.device || earlier.stream != task.stream) waited_for_[after] = true;
    }
  }
}

int message_channel(const Plan& plan, TaskId message) {
  const Task& task = plan.tasks[message];
  const bool sends = task.kind == TaskKind::send;
  const DeviceId other = plan.tasks[task.partner].device;
  const int from = plan.topology.index_in_process(sends ? task.device : other);
  const int to = plan.topology.index_in_process(sends ? other : task.device);
  const int for_updates = task.stream >= Stream::send_update ? 1 : 0;
  return 1 + 2 * (from * plan.topology.most_devices_in_process() + to) + for_updates;
}

void BoundPlan::add_algorithms(std::map<std::string, std::string>& chosen) const {
  for (const TaskId t : plan_.tasks.ids()) {
    const Task& task = plan_.tasks[t];
    if (task.flops > 0 && ops_[t] != nullptr)
      chosen[graph_.nodes[task.node].name + " " + op_name(*task.op) + " " + std::to_string(plan_.images)] =
          ops_[t]->algorithm();
  }
}

}  // namespace convnet
