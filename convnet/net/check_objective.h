// The objective whose differences gradient checks take.
#pragma once

#include <map>
#include <vector>

#include "convnet/runtime/executor.h"

namespace convnet {

/// The sum of all costs, times their coefficients, per image, as the gradients of training mean it: the
/// labels of a cost are constants, even where a layer that learns makes them; and where softmax (or logistic)
/// and cost are differentiated together, log p is neither rounded nor floored, for it is computed here from
/// what the softmax reads. The plan's own costs are taken where neither matters.
class CheckObjective {
 public:
  /// Keeps references to all arguments.
  CheckObjective(const Plan& plan, const Graph& graph, const Executor& executor, const StepInputs& inputs);

  /// Returns whether after_task() has anything to read; if not, the plan's own costs are the objective.
  bool reads_outputs() const { return !parts_.empty(); }
  /// Reads what a task of a step left; call it after each task. Tasks of several devices may do so at once.
  void after_task(TaskId task);
  /// Keeps the labels of the step that has just been run: objectives to come are for these.
  void hold_labels();
  /// The objective of the step that has just been run.
  double value(const StepResult& result) const;

 private:
  /// A cost of one microbatch that is computed here, and what its tasks left.
  struct Part {
    TaskId cost_task, output_task;  ///< tasks after which the labels, and the outputs, are read
    BufferId labels_buffer, output_buffer;
    std::int64_t first_image = 0;
    bool logits = false;  ///< the output is what softmax or logistic reads
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
