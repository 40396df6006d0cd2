// Builds a plan from a graph: the Lowering that layers write their operations into.
#pragma once

#include <map>
#include <tuple>

#include "convnet/plan/gradient_sums.h"
#include "convnet/plan/updates.h"

namespace convnet {

/// Makes one plan. It follows the schedule of the graph, and implements the Lowering that the layers call.
/// The transient buffers of the plan have no places in memory yet.
class PlanBuilder : public Lowering {
 public:
  /// All arguments that are references must outlive the builder.
  PlanBuilder(const Graph& graph, const std::vector<MatrixInfo>& matrices, const Target& target,
              const PlanOptions& options, const NetBuffers& net_buffers, Phase phase, std::int64_t images);
  /// Makes the plan. Call it once.
  Plan build();

  const Microbatch& microbatch() const override { return at_.facts; }
  Value input(std::size_t i) override { return output_of(at_.node->inputs[i]); }
  Value output() override;
  Value output_gradient() override { return gradients_.of(at_.node->id, at_.microbatch); }
  bool wants_input_gradient(std::size_t i) const override;
  Value input_gradient(std::size_t i) override;
  Value weights(std::size_t i) override;
  bool wants_weights_gradient(std::size_t i) const override { return graph_.learns(*at_.node, i); }
  Value weights_gradient(std::size_t i) override;
  Value kept(const std::string& name, const Dims& dims, DataType type) override;
  void keep(const std::string& name, Value value) override;
  void merge_replicas(const std::vector<std::string>& from, const std::vector<std::string>& into,
                      const Dims& dims, const Merge& merge) override;
  std::vector<std::int64_t> images_of_replicas() const override;
  Value source(std::size_t matrix) override;
  Dims uncropped_image(std::size_t matrix) const override { return matrices_[matrix].uncropped; }
  Value mean_image() override;
  Value step() override { return TaskEmitter::value_of(net_buffers_.step[at_.device]); }
  Value costs() override { return TaskEmitter::value_of(net_buffers_.costs[at_.device]); }
  std::int64_t cost_slot() const override;
  void run(const OpDesc& op, const std::vector<Value>& values) override;
  void run_across(const OpDesc& op, const std::vector<Value>& values) override;
  void forward_unchanged() override;
  void backward_unchanged(std::size_t i) override;

 private:
  /// State of a node for one microbatch.
  struct NodeState {
    Value output;
    bool recompute = false;  ///< the output is not kept: backward computes it again before it reads it
    std::map<std::string, Value> kept;
  };

  /// The node and microbatch whose operations are being written down.
  struct At {
    const Node* node = nullptr;
    int microbatch = 0;
    DeviceId device{0};
    bool backward = false;
    bool recomputing = false;  ///< a forward during backward
    Microbatch facts;
  };

  TaskPlace place() const {
    return {at_.node == nullptr ? NodeId() : at_.node->id, at_.microbatch, pass_, at_.device};
  }
  TaskKind kind_of(const OpDesc& op) const;
  bool training() const { return plan_.phase != Phase::test; }
  bool random() const { return plan_.phase == Phase::train; }
  Microbatch facts_of(const Node& node, int microbatch) const;
  void enter(const Node& node, int microbatch, bool backward);
  template <class Work>
  void naming_layer(const Work& work);
  void forward_run(const Node& node, int run);
  void backward_run(const Node& node, int run);
  void gather_gradient(const Node& node, int microbatch);
  /// Returns the microbatches of the replicas that run together, if they have images.
  std::vector<int> microbatches_of_run(const Node& node, int run) const;
  std::vector<int> microbatches_of_this_run() const;
  void merge_kept(const std::vector<int>& microbatches, const std::vector<std::string>& from,
                  const std::vector<std::string>& into, const Dims& dims, const Merge& merge);
  /// The arguments of merge_replicas(), and the replicas of the run, which exchange their statistics.
  struct Merging {
    const Exchange& exchange;
    const Exchange::Share share;  ///< all of what the first member makes
    const std::vector<int>& microbatches;
    const std::vector<std::string>& from;
    const std::vector<std::string>& into;
    const Dims& dims;
    const Merge& merge;
  };
  void bring_merged(const Merging& all, int member);
  Statistics merged_by_stage(const Merging& all, int stage, int member);
  /// Returns the tensors that this replica keeps under these names; makes those that do not exist yet.
  std::vector<Value> kept_as(const std::vector<std::string>& names, const Dims& dims);
  Value kept_by(int microbatch, const std::string& name) const;
  bool inputs_stay();
  NodeState& state(NodeId node);
  DeviceId home(NodeId node) const { return graph_.nodes[node].device(at_.microbatch); }
  const Node& input_node() const { return graph_.nodes[at_.node->inputs[0]]; }
  Value output_of(NodeId id);
  void record_rewrite(const char* does, const std::string& what, const char* how);
  Value in_place_output();
  void set_output(Value v);
  BufferId weights_buffer(std::size_t i) const;

  const Graph& graph_;
  const std::vector<MatrixInfo>& matrices_;
  const PlanOptions& options_;
  const NetBuffers& net_buffers_;
  Plan plan_;
  std::vector<std::int64_t> images_;  ///< by microbatch
  TaskEmitter emitter_;
  GradientSums gradients_;
  UpdateWriter updates_;
  Table<NodeId, std::vector<NodeState>> states_;  ///< by node and microbatch; not of data layers
  /// By node and microbatch: how many of its users have run backward, counted as often as they read it.
  Table<NodeId, std::vector<int>> users_done_;
  /// Data layers, by node, microbatch and device.
  std::map<std::tuple<NodeId, int, DeviceId>, NodeState> loaded_;
  At at_;
  int pass_ = 0;
};

}  // namespace convnet
