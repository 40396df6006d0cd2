// Runs plans: one worker thread per device follows that device's tasks in order and waits for tasks of other
// devices.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convnet/plan/plan.h"

namespace convnet {

/// What one minibatch needs from the host.
struct StepInputs {
  /// Per provider matrix: the first image of the minibatch, contiguous; null where no layer reads the matrix.
  std::vector<const std::byte*> matrices;
  std::uint64_t iteration = 0;
  std::vector<Rates> rates;  ///< by WeightBuffers::rate_index; may be empty in tests
};

struct StepResult {
  std::vector<double> costs;  ///< summed over images, by slot; [0] is 1 if a cost was not finite (then
                              ///< nothing was updated), or a weight is not
  bool finite() const { return costs.empty() || costs[0] == 0; }
};

/// When a task ran, in seconds since the start of the step; by index into Plan::tasks.
struct TaskTime {
  double begin = 0, end = 0;
};

class Executor {
 public:
  /// `physical`: the device behind each index of the plan, as --gpu lists them. Keeps a reference to `plans`.
  Executor(PlanSet& plans, std::vector<int> physical);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Allocates memory for `plan` if it needs more than is there. Throws DeviceError with what is needed and
  /// what there is.
  void reserve(const Plan& plan);

  /// Runs a plan to its end and waits for it. `times` (optional) receives when each task ran. `after_task`
  /// (optional) is called on the worker after each task; what it throws, and what a task throws, ends the
  /// step and is rethrown here.
  StepResult run(const Plan& plan, const StepInputs& inputs, std::vector<TaskTime>* times = nullptr,
                 const std::function<void(std::size_t task)>& after_task = nullptr);

  /// Copies a buffer of floats to or from its canonical (dense) form. Transient buffers: only between a task
  /// that writes them and the next one that uses their memory, that is from `after_task`.
  std::vector<float> read(const Plan* plan, int buffer) const;
  void write(int persistent_buffer, std::span<const float> values);

 private:
  class Worker;
  struct Run;

  std::byte* address(const Buffer& b) const;

  PlanSet& plans_;
  std::vector<int> physical_;
  std::vector<std::unique_ptr<DeviceMemory>> persistent_, transient_;  ///< per device
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace convnet
