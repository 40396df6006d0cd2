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
    task.device = spec.device;
    task.stream = spec.stream;
    task.after = spec.after;
    task.node = spec.node;
    task.op = FillZero{};
    plan.tasks.push_back(std::move(task));
  }
  return plan;
}

inline Graph graph_of(const std::vector<std::string>& names) {
  Graph graph;
  for (const std::string& name : names) {
    Node node;
    node.id = static_cast<int>(graph.nodes.size());
    node.name = name;
    graph.nodes.push_back(std::move(node));
  }
  return graph;
}

/// Its index.
inline int add_buffer(Plan& plan, int device, std::int64_t bytes, BufferKind kind = BufferKind::activation) {
  Buffer b;
  b.device = device;
  b.bytes = bytes;
  b.kind = kind;
  plan.buffers.push_back(std::move(b));
  return static_cast<int>(plan.buffers.size()) - 1;
}

}  // namespace convnet::test
