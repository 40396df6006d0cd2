#include "convnet/plan/plan.h"

namespace convnet {

const char* to_string(BufferKind kind) {
  switch (kind) {
    case BufferKind::weights: return "weights";
    case BufferKind::increment: return "increments";
    case BufferKind::mean: return "mean image";
    case BufferKind::step: return "step block";
    case BufferKind::costs: return "costs";
    case BufferKind::input: return "input";
    case BufferKind::activation: return "activations";
    case BufferKind::gradient: return "gradients";
    case BufferKind::weights_gradient: return "weight gradients";
    case BufferKind::workspace: break;
  }
  return "workspace";
}

const char* to_string(TaskKind kind) {
  switch (kind) {
    case TaskKind::load: return "load";
    case TaskKind::forward: return "forward";
    case TaskKind::backward: return "backward";
    case TaskKind::update: return "update";
    case TaskKind::reorder: return "reorder";
    case TaskKind::accumulate: return "accumulate";
    case TaskKind::zero: break;
  }
  return "zero";
}

std::string describe(const Task& task, const Graph& graph) {
  const std::string layer = task.node < 0 ? "" : graph.nodes[static_cast<std::size_t>(task.node)].name + " ";
  return layer + to_string(task.kind) + ": " + op_name(task.op) + ", device " + std::to_string(task.device);
}

}  // namespace convnet
