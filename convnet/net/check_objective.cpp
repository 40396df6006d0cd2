#include "convnet/net/check_objective.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/cost_math.h"

namespace convnet {
namespace {

/// log(1 + e^x), for any x.
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

/// log(sum of e^x)
double log_sum_exp(const float* x, std::int64_t count) {
  const auto most = static_cast<double>(*std::max_element(x, x + count));
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(x[i]) - most);
  return most + std::log(sum);
}

/// The last task before `end` that writes a buffer.
TaskId writer_of(const Plan& plan, BufferId buffer, TaskId end) {
  TaskId last;
  for (const TaskId t : plan.tasks.ids()) {
    if (t == end) break;
    for (const BufferUse& use : plan.tasks[t].uses)
      if (use.buffer == buffer && use.access != Access::read) last = t;
  }
  if (last.exists()) return last;
  throw std::logic_error("gradient check: nothing writes what a cost reads");
}

}  // namespace

CheckObjective::CheckObjective(const Plan& plan, const Graph& graph, const Executor& executor,
                               const StepInputs& inputs)
    : plan_(plan), graph_(graph), executor_(executor), inputs_(inputs) {
  for (const TaskId t : plan.tasks.ids()) {
    const OpDesc& op = *plan.tasks[t].op;
    if (std::holds_alternative<LogregForward>(op) || std::holds_alternative<CrossentForward>(op) ||
        std::holds_alternative<BinaryCostForward>(op))
      find(t);
  }
}

/// Adds the part of a cost's forward task, if it has to be computed here.
void CheckObjective::find(TaskId task) {
  const Task& cost = plan_.tasks[task];
  const Node& node = graph_.nodes[cost.node];
  const Node& made = graph_.nodes[node.inputs.back()];
  const bool made_labels = graph_.nodes[node.inputs[0]].learns_below;
  const bool probabilities =
      node.layer->facts.cost->differentiates == made.layer->facts.function && made.gpus == node.gpus;
  if (node.layer->facts.cost->coeff == 0 || !(probabilities || made_labels)) return;
  Part part;
  part.cost_task = part.output_task = task;
  part.first_image = graph_.first_image(plan_.images, cost.microbatch);
  if (!std::holds_alternative<LogregForward>(*cost.op)) part.labels_buffer = cost.uses[0].buffer;
  part.output_buffer = cost.uses[1].buffer;
  part.logits = probabilities;
  if (part.logits) {
    // It is read where it is made: the neuron below may write over it at once.
    for (const TaskId t : plan_.tasks.ids()) {
      if (t == task) break;
      const Task& below = plan_.tasks[t];
      const bool makes = std::holds_alternative<SoftmaxForward>(*below.op) ||
                         std::holds_alternative<NeuronForward>(*below.op);
      if (!makes || below.node != node.inputs.back() || below.microbatch != cost.microbatch) continue;
      part.output_buffer = below.uses[0].buffer;
      part.output_task = writer_of(plan_, part.output_buffer, t);
    }
    if (part.output_task == task)
      throw std::logic_error("gradient check: nothing makes the probabilities that a cost reads");
  }
  parts_[cost.node].push_back(std::move(part));
}

void CheckObjective::after_task(TaskId task) {
  for (auto& [node, parts] : parts_) {
    for (Part& part : parts) {
      if (part.output_task == task) part.output = executor_.read(&plan_, part.output_buffer);
      if (part.cost_task == task && part.labels_buffer.exists())
        part.labels = executor_.read(&plan_, part.labels_buffer);
    }
  }
}

void CheckObjective::hold_labels() {
  for (auto& [node, parts] : parts_)
    for (Part& part : parts) part.held = part.labels;
}

double CheckObjective::value(const StepResult& result) const {
  double sum = 0;
  for (const CostSlot& c : plan_.costs) {
    double of_layer = result.costs[static_cast<std::size_t>(c.slot)];
    if (const auto parts = parts_.find(c.node); parts != parts_.end()) {
      of_layer = 0;
      for (const Part& part : parts->second) of_layer += cost(part);
    }
    sum += graph_.nodes[c.node].layer->facts.cost->coeff * of_layer;
  }
  return sum / static_cast<double>(plan_.images);
}

double CheckObjective::cost(const Part& part) const {
  const Task& task = plan_.tasks[part.cost_task];
  const Node& node = graph_.nodes[task.node];
  double sum = 0;
  if (const auto* op = std::get_if<LogregForward>(&*task.op)) {
    const int matrix = graph_.nodes[node.inputs[0]].layer->facts.data->matrix;
    const auto* labels =
        reinterpret_cast<const std::int32_t*>(inputs_.matrices[static_cast<std::size_t>(matrix)]);
    const ClassTargets& targets = op->targets;
    const ClassTargetReader reader{labels,
                                   targets.class_weights.empty() ? nullptr : targets.class_weights.data(),
                                   op->c, targets.smoothing, targets.mixed};
    for (std::int64_t n = 0; n < op->n; ++n) {
      const ClassTarget target = reader.at(part.first_image + n);
      const float* x = part.output.data() + n * op->c;
      const double log_sum = log_sum_exp(x, op->c);
      for (std::int64_t i = 0; i < op->c; ++i) {
        const auto t = static_cast<double>(target.weight * target.of(i));
        if (t != 0) sum += t * (log_sum - static_cast<double>(x[i]));
      }
    }
    return sum;
  }
  const std::vector<float>& labels = part.held.empty() ? part.labels : part.held;
  const auto t = [&](std::size_t i) { return static_cast<double>(labels[i]); };
  const auto x = [&](std::size_t i) { return static_cast<double>(part.output[i]); };
  if (const auto* op = std::get_if<CrossentForward>(&*task.op)) {
    for (std::int64_t n = 0; n < op->n; ++n) {
      const double log_sum = part.logits ? log_sum_exp(part.output.data() + n * op->c, op->c) : 0;
      for (auto i = static_cast<std::size_t>(n * op->c); i < static_cast<std::size_t>((n + 1) * op->c); ++i)
        sum += part.logits ? t(i) * (log_sum - x(i)) : -weighted_log(t(i), x(i));
    }
    return sum;
  }
  const auto& op = std::get<BinaryCostForward>(*task.op);
  const auto positive = static_cast<double>(op.pos_weight);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (part.logits)
      sum += positive * t(i) * softplus(-x(i)) + (1 - t(i)) * softplus(x(i));
    else
      sum -= weighted_log(positive * t(i), x(i)) + weighted_log(1 - t(i), 1 - x(i));
  }
  return sum;
}

}  // namespace convnet
