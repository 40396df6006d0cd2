// Runs plans. Where operations block (CPU devices), one worker thread per device follows that device's tasks,
// in the order of each of its streams, and waits for tasks of other devices; where devices have queues
// (GPUs), the calling thread fills them (queue_runner.h).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convnet/plan/plan_set.h"
#include "convnet/plan/timeline.h"
#include "convnet/runtime/bound_plan.h"
#include "convnet/runtime/queue_runner.h"

namespace convnet {

/// What one minibatch needs from the host.
struct StepInputs {
  /// Per provider matrix: the first image of the minibatch, contiguous; null where no layer reads the matrix.
  std::vector<const std::byte*> matrices;
  /// Where the plan's next step is known: its matrices. GPUs get them while this step computes, or keep what
  /// they have where these are `matrices`. The memory must keep its contents until that step.
  std::vector<const std::byte*> next;
  /// The executor's next step is certain to be of this plan, with `next`, the next iteration, the same rates,
  /// and neither `times` nor `after_task`: GPUs may begin it before this one has ended. Weights that are read
  /// before it is run may be those after it.
  bool next_is_certain = false;
  std::uint64_t iteration = 0;
  std::vector<Rates> rates;  ///< by WeightBuffers::rate_index; may be empty in tests
};

struct StepResult {
  std::vector<double> costs;  ///< summed over images, by slot; [0] is not 0 if a cost was not finite (then
                              ///< nothing was updated), or a weight is not
  bool finite() const { return costs.empty() || costs[0] == 0; }
};

class Executor {
 public:
  /// `physical`: the device behind each index of the plan, as --gpu lists them. A step in which no task ends
  /// for `stall_seconds` is given up. Keeps references to `plans` and `backend`, which the
  /// target of the plans must belong to.
  Executor(const PlanSet& plans, const Backend& backend, std::vector<int> physical,
           double stall_seconds = 300);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Allocates memory for `plan` if it needs more than is there. Throws DeviceError with what each device
  /// needs and what there is.
  void reserve(const Plan& plan);

  /// Runs a plan to its end and waits for it; the plan must live as long as the executor. `times` (optional)
  /// receives when each task ran. `after_task` (optional) is called after each task, where there are workers
  /// by that of its device, so by several threads at once; what it throws, and what a task throws, ends the
  /// step and is rethrown here. Throws RunError with a report of what each device waits for if the step
  /// stalls; the executor cannot be used any more then.
  StepResult run(const Plan& plan, const StepInputs& inputs, std::vector<TaskTime>* times = nullptr,
                 const std::function<void(std::size_t task)>& after_task = nullptr);

  const Backend& backend() const { return backend_; }
  /// Algorithms that the libraries chose for the plans so far, "conv1 conv.forward 128" -> "jit:avx512_core",
  /// for checkpoints.
  std::map<std::string, std::string> algorithms() const;

  /// Whether a step on a GPU was given up: whatever waits for the device may wait for ever.
  bool stalled() const { return queues_ && queues_->stalled(); }

  /// Whether steps are faster without `times`, which need every task to be marked.
  bool times_cost() const { return queues_ != nullptr; }
  /// Whether steps copy their matrices to the devices; else devices read them where they lie.
  bool copies_inputs() const { return queues_ != nullptr; }

  /// Copies a buffer of f32 (or, from, of bf16) numbers to or from its canonical (dense) form. Transient
  /// buffers: only between a task that writes them and the next one that uses their memory, that is from
  /// `after_task`.
  std::vector<float> read(const Plan* plan, int buffer) const;
  void write(int persistent_buffer, std::span<const float> values);

  /// A learned matrix in canonical form. write() reaches all replicas.
  std::vector<float> read_weights(const WeightBuffers& w) const;
  void write_weights(const WeightBuffers& w, std::span<const float> values);
  /// Its increments, or the sums of gradients of an update that is not yet due: all zeros where there are
  /// none.
  std::vector<float> read_shards(const WeightBuffers& w, int UpdateShard::*buffer) const;
  void write_shards(const WeightBuffers& w, int UpdateShard::*buffer, std::span<const float> values);

 private:
  class Worker;
  struct Run;

  std::byte* address(const Buffer& b) const;
  std::vector<std::byte> step_block(std::uint64_t iteration, const std::vector<Rates>& rates) const;
  std::vector<double> run_by_queues(const Plan& plan, const StepInputs& inputs, std::vector<TaskTime>* times,
                                    const std::function<void(std::size_t)>& after_task);
  std::vector<double> run_by_workers(const Plan& plan, const StepInputs& inputs, std::vector<TaskTime>* times,
                                     const std::function<void(std::size_t)>& after_task);
  const std::shared_ptr<const BoundPlan>& bound(const Plan& plan);
  void settle() const;
  void leave_memory();
  [[noreturn]] void give_up(const std::shared_ptr<Run>& run);

  const PlanSet& plans_;
  const Backend& backend_;
  std::vector<int> physical_;
  double stall_seconds_;
  std::vector<std::unique_ptr<DeviceMemory>> persistent_, transient_;  ///< per device
  std::map<const Plan*, std::shared_ptr<const BoundPlan>> bound_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<QueueRunner> queues_;  ///< instead of workers
};

}  // namespace convnet
