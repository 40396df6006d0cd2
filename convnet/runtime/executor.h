// Runs plans: owns the devices' memory, and gives steps to the runner (runner.h). In a run of several
// processes each executes the tasks of its own devices, and all make the same calls.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convnet/plan/plan_set.h"
#include "convnet/plan/timeline.h"
#include "convnet/runtime/bound_plan.h"
#include "convnet/runtime/processes.h"
#include "convnet/runtime/runner.h"

namespace convnet {

/// Holds what the devices get from the host for one step.
struct StepInputs {
  /// Per provider matrix: the first image of the minibatch, contiguous; null where no layer reads the matrix.
  std::vector<const std::byte*> matrices;
  std::uint64_t iteration = 0;
  std::vector<Rates> rates;                ///< by WeightBuffers::rate_index; may be empty in tests
  float average_share = 1, clip_norm = 0;  ///< as in StepHeader
};

/// Holds what a step has computed for the host.
struct StepResult {
  /// Sums over the images, by CostSlot::slot. The first number is not 0 if a cost was not finite, in which
  /// case nothing was updated, or if a weight is not.
  std::vector<double> costs;
  bool finite() const { return costs.empty() || costs[0] == 0; }
};

/// Owns the memory of this process's devices, runs steps in it, and reads and writes what is there.
class Executor {
 public:
  /// `physical` has the device behind each index of the plans, as --gpu lists them. A step ends with an error
  /// if none of its tasks ends for `stall_seconds`. `backend` must be the one that the target of the plans
  /// belongs to. `processes` is null where there is one process. All references must outlive this.
  Executor(const PlanSet& plans, const Backend& backend, std::vector<int> physical,
           double stall_seconds = kStallSeconds, Processes* processes = nullptr);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Binds `plan`, and allocates memory if it needs more than is there. Throws what Backend::bind() throws;
  /// DeviceError, with what each device needs and has, if the memory is too small; and std::logic_error if
  /// steps in flight use the memory that would be replaced.
  void reserve(const Plan& plan);

  /// The most steps that may be in flight: submitted and not waited for.
  static constexpr std::size_t kMostInFlight = 2;

  /// Submits a step. Steps run in the order in which they are submitted, each as if the one before had ended.
  /// Devices may begin a step at once, even while another one runs. The plan must live as long as the
  /// executor, and the matrices must keep their contents until the step was waited for. Weights that are read
  /// while steps are in flight may be those before or after any of them. `times` (optional) receives in
  /// wait() when each task ran. `after_task` (optional) is called after each task, in wait(); the threads of
  /// CPU devices call it, so several may at once. Throws std::logic_error if kMostInFlight steps are in
  /// flight, and what reserve() throws; then the step is not submitted.
  void submit(const Plan& plan, const StepInputs& inputs, TaskTimes* times = nullptr,
              const std::function<void(TaskId task)>& after_task = nullptr);
  /// Waits for the oldest step in flight and returns its results. Throws what a task or `after_task` threw;
  /// then that step has ended, and the one behind it stays in flight and runs. Throws RunError, with a report
  /// of what each device waits for, if the step stalls; then the executor cannot be used any more. Throws
  /// std::logic_error if no step is in flight.
  StepResult wait();
  /// Submits a step and waits for it. Throws std::logic_error if other steps are in flight.
  StepResult run(const Plan& plan, const StepInputs& inputs, TaskTimes* times = nullptr,
                 const std::function<void(TaskId task)>& after_task = nullptr);
  /// Announces the matrices that the plan's next step will probably read, so that GPUs can copy them while
  /// the present step computes. Their contents must stay the same until the next step has ended; if the
  /// plan's newest step reads them, too, already since its submission. The next step may still read others.
  /// Throws std::logic_error if more than one step is in flight.
  void expect(const Plan& plan, const std::vector<const std::byte*>& matrices);
  /// Returns the number of steps that were submitted and not waited for.
  std::size_t in_flight() const { return runner_->in_flight(); }

  /// Returns the algorithms that the libraries chose for the plans so far, as checkpoints have them:
  /// "conv1 conv.forward 128" -> "jit:avx512_core".
  std::map<std::string, std::string> algorithms() const;

  /// Whether a device hangs: whatever waits for it may wait for ever.
  bool stalled() const { return runner_->stalled(); }
  double stall_seconds() const { return stall_seconds_; }

  /// Whether messages to other processes do not pass through the hosts.
  bool has_communicator() const { return runner_->has_communicator(); }

  /// Whether submit() with `times` slows a step down: on GPUs, every task must be marked.
  bool times_cost() const { return !backend_.on_host(); }
  /// Whether the steps of the plan are recorded by now, so that each takes one call.
  bool is_recorded(const Plan& plan) const { return runner_->is_recorded(plan); }
  /// Whether steps copy their matrices to the devices; else devices read them where they lie.
  bool copies_inputs() const { return !backend_.on_host(); }

  /// Whether this process has the device.
  bool is_here(DeviceId device) const { return plans_.topology().process(device) == process_; }
  /// The processes of the run; null where there is one.
  Processes* processes() const { return processes_; }

  /// Read and write a buffer as dense f32 numbers, which are converted where the buffer is bf16. A transient
  /// buffer can only be read from `after_task`, between the task that writes it and the next one that uses
  /// its memory. Both throw std::logic_error for a buffer of another process.
  std::vector<float> read(const Plan* plan, BufferId buffer) const;
  void write(BufferId persistent_buffer, std::span<const float> values);

  /// Writes the same values to those of these buffers that are on devices of this process.
  void write_everywhere(const std::vector<BufferId>& persistent_buffers, std::span<const float> values);

  /// Read and write a weight matrix as dense numbers. All processes read it together, and each gets all of
  /// it; each writes it to its own replicas and their bf16 copies.
  std::vector<float> read_weights(const WeightBuffers& w) const;
  void write_weights(const WeightBuffers& w, std::span<const float> values);
  /// Read and write the increments of a matrix, or the sums of gradients of an update that is not yet due;
  /// they are zeros where there are none.
  std::vector<float> read_shards(const WeightBuffers& w, BufferId UpdateShard::*buffer) const {
    return read_ranges(w, ranges_of(w.shards, buffer));
  }
  void write_shards(const WeightBuffers& w, BufferId UpdateShard::*buffer, std::span<const float> values) {
    write_ranges(w, ranges_of(w.shards, buffer), values);
  }
  /// Read and write the running average of a matrix. There must be one to be read.
  std::vector<float> read_averages(const WeightBuffers& w) const {
    return read_ranges(w, ranges_of(w.averages, &AverageShard::average));
  }
  void write_averages(const WeightBuffers& w, std::span<const float> values) {
    write_ranges(w, ranges_of(w.averages, &AverageShard::average), values);
  }

 private:
  std::byte* address(const Buffer& b) const;
  std::vector<double> costs_of_all(const std::vector<double>& costs) const;
  /// The range of a matrix's flat memory that a buffer holds.
  struct MatrixRange {
    std::int64_t begin = 0, count = 0;  ///< floats
    BufferId buffer;
  };
  /// Returns those of the shards that have the buffer.
  template <class Shard>
  static std::vector<MatrixRange> ranges_of(const std::vector<Shard>& shards, BufferId Shard::*buffer) {
    std::vector<MatrixRange> ranges;
    for (const Shard& shard : shards) {
      if ((shard.*buffer).exists()) ranges.push_back({shard.begin, shard.count, shard.*buffer});
    }
    return ranges;
  }
  std::vector<float> read_ranges(const WeightBuffers& w, const std::vector<MatrixRange>& ranges) const;
  void write_ranges(const WeightBuffers& w, const std::vector<MatrixRange>& ranges,
                    std::span<const float> values);
  std::vector<std::byte> step_block(const StepInputs& inputs) const;
  void check_fits(const Plan& plan) const;
  const std::shared_ptr<const BoundPlan>& bound(const Plan& plan);
  void check_here(const Buffer& b) const;

  const PlanSet& plans_;
  const Backend& backend_;
  Processes* processes_;
  int process_;                 ///< this process's number
  std::vector<DeviceId> here_;  ///< its devices
  Table<DeviceId, int> physical_;
  double stall_seconds_;
  Table<DeviceId, std::unique_ptr<DeviceMemory>> persistent_, transient_;
  std::deque<std::shared_ptr<const BoundPlan>> bound_;  ///< in the order in which they were bound
  std::unique_ptr<Runner> runner_;
};

}  // namespace convnet
