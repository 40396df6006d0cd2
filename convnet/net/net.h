// A net ready to run: graph, plans, executor and weights, made from two files and a data provider.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/checkpoint/safetensors.h"
#include "convnet/config/ini.h"
#include "convnet/graph/graph.h"
#include "convnet/net/devices.h"
#include "convnet/net/gradient_judge.h"
#include "convnet/net/options.h"
#include "convnet/plan/plan_set.h"
#include "convnet/runtime/executor.h"

namespace convnet {

/// Owns everything that a run computes with: the graph, its plans, the devices with their memory, and so the
/// weights. Its functions are called by one thread.
class Net {
 public:
  /// `mean` is the mean image of the data, empty for none; a step subtracts it where the provider says so.
  /// `learns` says whether the net will be trained. `backend` has the devices to use; null means those that
  /// the options name. Of several processes (`processes`, else null) each has its own devices, and all make
  /// the same calls: reading weights, too, is done together.
  Net(Graph graph, const Provider& provider, const DeviceOptions& devices, const StepOptions& step,
      std::vector<float> mean, bool learns, std::unique_ptr<Backend> backend = nullptr,
      Processes* processes = nullptr);
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;
  ~Net();

  const Graph& graph() const { return graph_; }
  const PlanSet& plans() const { return plans_; }
  Executor& executor() { return executor_; }
  const Executor& executor() const { return executor_; }
  const Backend& backend() const { return *backend_; }

  /// Makes the plan of `images` images a minibatch and its memory.
  const Plan& prepare(Phase phase, std::int64_t images);

  /// Sets initial weights by canonical index, the same for every layout and device, and zero increments. Call
  /// it after a prepare().
  void init_weights(std::uint64_t seed);
  /// Copies the weights of the same name and shape from a checkpoint; prints a table of what was copied,
  /// skipped and newly made. Throws InputError if it cannot be read or nothing fits.
  void init_from(const std::string& checkpoint);
  /// Compares the gradient of each learned matrix with central differences of the costs along it and along
  /// random directions. Weights are left as they were. Throws RunError where a cost is not finite, and once
  /// `stopped` says that the user wants no more.
  std::vector<GradientReport> check_gradients(
      std::int64_t images, const StepInputs& inputs,
      const std::function<bool()>& stopped = [] { return false; });
  /// Read and write weights, their running averages, increments and the gradients of updates that are not yet
  /// due as a checkpoint's tensors: whole matrices, whatever the devices. load() throws InputError naming
  /// `file` and the tensor that is missing or has another shape. A net that does not learn takes the averages
  /// as its weights. A matrix whose optimiser was of another kind begins with increments of 0, and a warning
  /// says so.
  void load(const TensorFile& tensors, const std::string& file, const UpdateWindows& windows = {});
  void store(TensorFile& tensors) const;
  /// Returns the progress of updates that goes on from minibatch to minibatch.
  const UpdateWindows& windows() const { return windows_; }
  /// Makes the running averages the weights, if they are kept, until use_trained(); store() stores the same
  /// in between. No step may be in flight.
  void use_averages();
  void use_trained();

  /// Returns the numbers of a minibatch's updates, by WeightBuffers::rate_index; submit() fills in those that
  /// depend on earlier updates.
  std::vector<Rates> rates(const TrainingProgress& progress) const;
  /// Submit, await and run one minibatch on all devices, and announce the next one's matrices, as
  /// Executor::submit(), wait(), run() and expect() do. In training, updates that span several minibatches
  /// move on.
  void submit(const Plan& plan, StepInputs inputs, TaskTimes* times = nullptr,
              const std::function<void(TaskId task)>& after_task = nullptr);
  StepResult wait();
  void expect(const Plan& plan, const std::vector<const std::byte*>& matrices) {
    executor_.expect(plan, matrices);
  }
  std::size_t in_flight() const { return executor_.in_flight(); }
  /// Returns whether a step may be submitted while another is in flight. Updates that span several
  /// minibatches forbid it, because a step's rates depend on how the step before ended.
  bool submits_ahead() const;
  StepResult run(const Plan& plan, StepInputs inputs, TaskTimes* times = nullptr,
                 const std::function<void(TaskId task)>& after_task = nullptr);

  /// Reads the increment of a learned matrix, or of its part on some device.
  std::vector<float> increment(const WeightBuffers& w) const {
    return executor_.read_shards(w, &UpdateShard::increment);
  }
  void set_increment(const WeightBuffers& w, const std::vector<float>& values) {
    executor_.write_shards(w, &UpdateShard::increment, values);
  }

  /// Finds where the first number that is not finite comes from: checks the weights, then runs the same
  /// minibatch without fusions. Returns a phrase for a message ("the first layer with such an output is
  /// 'conv2'"), or "" if all is finite.
  std::string first_non_finite(Phase phase, std::int64_t images, const StepInputs& inputs);

 private:
  class GradientCheck;
  struct InitSource;

  void upload_mean();
  const WeightSpec& spec(const WeightBuffers& w) const { return graph_.weight({w.node, w.index}); }
  /// Returns the name in checkpoints of a tensor that belongs to a matrix, as increment_name() does.
  std::string name_of(const WeightBuffers& w, const char* suffix) const;
  /// Returns how many minibatches make one update; 1 unless its period is longer than a minibatch.
  int minibatches_per_update(const WeightBuffers& w) const;
  void count_updates(const WeightBuffers& w, std::int64_t images, const UpdateWindows& before,
                     std::vector<Rates>& rates, UpdateWindows& after) const;
  std::vector<float> initial_values(const WeightBuffers& w, std::uint64_t seed,
                                    std::map<std::string, InitSource>& sources) const;

  Graph graph_;
  const Provider& provider_;
  std::vector<int> gpus_;  ///< physical numbers of the devices
  std::uint64_t seed_;
  std::vector<float> mean_;  ///< that a step subtracts; empty for none
  std::unique_ptr<Backend> backend_;
  bool learns_;
  float clip_norm_, average_share_;  ///< of every training step, as StepHeader has them
  PlanSet plans_;
  Executor executor_;
  bool mean_uploaded_ = false;
  UpdateWindows windows_;
  std::deque<UpdateWindows> windows_after_;  ///< windows_ once each step in flight has ended
  std::vector<std::vector<float>> trained_;  ///< the weights while use_averages() replaces them; else empty
};

}  // namespace convnet
