// The objective that gradient checks take finite differences of.
#pragma once

#include <map>
#include <vector>

#include "convnet/runtime/executor.h"

namespace convnet {

/// The function whose gradient training computes: the sum of all costs times their coefficients, per image.
/// It differs from the costs that the plan reports in two ways. Labels are constants, even if a layer that
/// learns makes them. And if a cost reads the probabilities of a softmax (or logistic) on the same devices,
/// log p is neither rounded nor floored, because it is computed here from the input of the softmax. Costs to
/// which neither applies are taken from the plan.
class CheckObjective {
 public:
  /// Keeps references to all arguments.
  CheckObjective(const Plan& plan, const Graph& graph, const Executor& executor, const StepInputs& inputs);

  /// Returns whether after_task() has anything to read; if not, the plan's own costs are the objective.
  bool reads_outputs() const { return !parts_.empty(); }
  /// Reads the buffers that a task has written; call it after each task. Several threads may call it at once.
  void after_task(TaskId task);
  /// Keeps the labels of the step that has just been run for the objectives of later steps.
  void hold_labels();
  /// Returns the objective of the step that has just been run.
  double value(const StepResult& result) const;

 private:
  /// A cost of one microbatch that is computed here, and the values that after_task() has read for it.
  struct Part {
    TaskId cost_task, output_task;  ///< tasks after which the labels, and the outputs, are read
    BufferId labels_buffer, output_buffer;
    std::int64_t first_image = 0;
    bool logits = false;  ///< `output` is the input of softmax or logistic
    std::vector<float> labels, held, output;
  };

  void find(TaskId task);
  double cost(const Part& part) const;

  const Plan& plan_;
  const Graph& graph_;
  const Executor& executor_;
  const StepInputs& inputs_;
  std::map<NodeId, std::vector<Part>> parts_;  ///< by cost layer
};

}  // namespace convnet
