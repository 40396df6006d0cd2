// A net ready to run: graph, plans, executor and weights, made from two files and a data provider.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/checkpoint/safetensors.h"
#include "convnet/graph/whole_layers.h"
#include "convnet/net/devices.h"
#include "convnet/net/gradient_judge.h"
#include "convnet/net/options.h"
#include "convnet/plan/plan_set.h"
#include "convnet/runtime/executor.h"

namespace convnet {

/// Where numbers that are not finite come from.
struct NonFinite {
  std::string text;           ///< "the first layer with such an output is 'conv2'"; "": all are finite
  bool after_update = false;  ///< an update has made a weight, or what it keeps of gradients, infinite
};

/// Owns the graph, the plans, the backend and the executor of a net. init_weights(), init_from() or load()
/// gives it weights; run(), or submit() and wait(), then does steps of training or tests. The provider and
/// `processes` must outlive it. Used by one thread.
class Net {
 public:
  /// `mean` is the mean image of the data (C,H,W), empty for none; a step subtracts it if the provider says
  /// so. `learns` says whether the net will be trained. `backend` has the devices to use; null means those
  /// that the options name. Of several processes (`processes`, else null) each has its own devices, and all
  /// make the same calls, because they read weights together, too.
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

  /// Returns the plan for minibatches of `images` images, and reserves memory for it. See
  /// Executor::reserve().
  const Plan& prepare(Phase phase, std::int64_t images);

  /// Sets initial weights, which are the same for every layout and device, and zero increments. Needs
  /// prepare(). Returns a checksum of all weights, which several processes must have the same.
  std::uint32_t init_weights(std::uint64_t seed);
  /// Copies the weights of the same name and shape from a checkpoint or another program's safetensors file,
  /// where a layer's weights may have PyTorch's names ("conv1.weight"). Prints a table of the matrices that
  /// were copied, skipped and newly made. Warns if the weights expect pixels of another scale than those of
  /// the run, which `pixel_std` (--pixel-std) divides. Returns a checksum of what was copied. Throws
  /// InputError if the file cannot be read or nothing fits.
  std::uint32_t init_from(const std::string& file_or_folder, bool pixel_std);
  /// Compares the gradient of each learned matrix with central differences of the costs, along the gradient
  /// and along random directions. Leaves the weights as they were. Throws RunError if a cost is not finite,
  /// or once `stopped` returns true.
  std::vector<GradientReport> check_gradients(
      std::int64_t images, const StepInputs& inputs,
      const std::function<bool()>& stopped = [] { return false; });
  /// Read and write the tensors of a checkpoint: weights, their running averages, increments, and the
  /// gradients of updates that are not yet due. The tensors are whole matrices, whatever the devices. load()
  /// throws InputError naming `file` and the tensor that is missing or has another shape. A net that does not
  /// learn takes the averages as its weights. A matrix whose optimiser was of another kind begins with
  /// increments of 0, and a warning says so; so does one that was frozen.
  void load(const TensorFile& tensors, const std::string& file, const UpdateWindows& windows = {});
  void store(TensorFile& tensors) const;
  /// Returns a phrase that names a tensor of store() with numbers that are not finite, which load() refuses,
  /// and its layer; "" if there is none.
  std::string overflow_in(const TensorFile& tensors) const;
  /// Returns the progress of updates that last longer than a minibatch.
  const UpdateWindows& windows() const { return windows_; }
  /// Makes the running averages the weights until use_trained(), if the net keeps averages. What store()
  /// writes does not change. No step may be in flight.
  void use_averages();
  void use_trained();

  /// Returns the rates of a minibatch's updates, by WeightBuffers::rate_index; submit() fills in the fields
  /// that depend on earlier updates.
  std::vector<Rates> rates(const TrainingProgress& progress) const;
  /// These do what Executor::submit(), wait(), run() and expect() do, and in training count the minibatches
  /// of updates that span several.
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

  /// Read and write the increment of a learned matrix.
  std::vector<float> increment(const WeightBuffers& w) const {
    return executor_.read_shards(w, &UpdateShard::increment);
  }
  void set_increment(const WeightBuffers& w, const std::vector<float>& values) {
    executor_.write_shards(w, &UpdateShard::increment, values);
  }

  /// Finds the source of numbers that are not finite: checks the weights, then runs the same minibatch
  /// without fusions, in the memory of the net's own plans. Waits for steps in flight first, and forgets
  /// their results. Should that step be finite, its rates are 0, so that the weights stay, but increments may
  /// be lost.
  NonFinite first_non_finite(Phase phase, std::int64_t images, const StepInputs& inputs);

 private:
  class GradientCheck;
  struct InitSource;

  void upload_mean();
  const WeightSpec& spec(const WeightBuffers& w) const { return graph_.weight({w.node, w.index}); }
  WholeMatrix whole(const WeightBuffers& w) const { return whole_matrix(graph_, {w.node, w.index}); }
  /// Returns the name in checkpoints of a tensor that belongs to a matrix, as increment_name() does.
  std::string name_of(const WeightBuffers& w, const char* suffix) const;
  /// Returns how many minibatches make one update; 1 unless its period is longer than a minibatch.
  int minibatches_per_update(const WeightBuffers& w) const;
  /// Drops the gradients since the last updates.
  void close_windows();
  void count_updates(const WeightBuffers& w, const Plan& plan, const UpdateWindows& before,
                     std::vector<Rates>& rates, UpdateWindows& after) const;
  std::vector<float> initial_values(const WeightBuffers& w, std::uint64_t seed,
                                    std::map<std::string, InitSource>& sources) const;

  Graph graph_;
  const Provider& provider_;
  std::vector<int> gpus_;  ///< physical numbers of the devices
  std::uint64_t seed_;
  std::vector<float> mean_;  ///< the mean image that a step subtracts; empty for none
  std::unique_ptr<Backend> backend_;
  bool learns_;
  float clip_norm_, average_share_;  ///< StepHeader's fields in every training step
  PlanSet plans_;
  /// The same net with no layer fused into another, so that every layer's own output can be seen.
  struct Unfused {
    Unfused(Graph plain, const PlanSet& like) : graph(std::move(plain)), plans(graph, like) {}
    const Graph graph;
    PlanSet plans;
  };
  std::unique_ptr<Unfused> unfused_;  ///< made by first_non_finite()
  Executor executor_;
  bool mean_uploaded_ = false;
  UpdateWindows windows_;
  std::deque<UpdateWindows> windows_after_;  ///< windows_ once each step in flight has ended
  /// The weights while use_averages() replaces them; else empty.
  std::map<const WeightBuffers*, std::vector<float>> trained_;
};

}  // namespace convnet
