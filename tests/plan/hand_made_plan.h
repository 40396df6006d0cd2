// Plans of a few tasks, made by hand, whose course is known.
#pragma once

#include <string>
#include <vector>

#include "convnet/plan/plan.h"

namespace convnet::test {

struct TaskSpec {
  TaskKind kind = TaskKind::forward;
  int device = 0;
  Stream stream = Stream::compute;
  std::vector<int> after = {};
  int node = -1;
};

inline Plan plan_of(const std::vector<TaskSpec>& specs) {
  Plan plan;
  plan.images = 100;
  for (const TaskSpec& spec : specs) {
    Task task;
    task.kind = spec.kind;
    task.device = DeviceId(spec.device);
    task.stream = spec.stream;
    for (const int after : spec.after) task.after.emplace_back(after);
    task.node = NodeId(spec.node);
    task.op = OpDesc(FillZero{});
    plan.tasks.push_back(std::move(task));
  }
  return plan;
}

inline Graph graph_of(const std::vector<std::string>& names) {
  Graph graph;
  for (const std::string& name : names) {
    Node node;
    node.id = graph.nodes.next_id();
    node.name = name;
    graph.nodes.push_back(std::move(node));
  }
  return graph;
}

inline BufferId add_buffer(Plan& plan, int device, std::int64_t bytes,
                           BufferKind kind = BufferKind::activation) {
  Buffer b;
  b.device = DeviceId(device);
  b.bytes = bytes;
  b.kind = kind;
  const BufferId id = plan.buffers.next_id();
  plan.buffers.push_back(std::move(b));
  return id;
}

}  // namespace convnet::test
