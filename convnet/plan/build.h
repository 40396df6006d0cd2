// Makes one plan of a PlanSet: the Lowering that layers write their operations into.
#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "convnet/plan/plan.h"

namespace convnet {

/// Used once. Decides what the set leaves open: layouts and places of the persistent buffers. The plan's
/// transient buffers have no places yet.
class PlanBuilder : public Lowering {
 public:
  PlanBuilder(PlanSet& set, Phase phase, std::int64_t images);
  Plan build();

  std::int64_t images() const override;
  std::int64_t first_image() const override;
  std::int64_t views() const override { return plan_.views; }
  bool training() const override { return plan_.phase != Phase::test; }
  bool random() const override { return plan_.phase == Phase::train; }
  bool fused() const override { return at_.node->fused; }
  bool input_masks_gradient() const override {
    return input_node().layer->facts.fuses_relu == FusesRelu::forward_and_gradient;
  }
  std::uint64_t random_key() const override;
  std::int64_t first_element() const override { return at_.node->first_element; }
  Value input(std::size_t i) override { return output_of(at_.node->inputs[i]); }
  Value output() override;
  Value output_gradient() override { return state(at_.node->id).gradient; }
  bool wants_input_gradient(std::size_t i) const override;
  Value input_gradient(std::size_t i) override;
  Value input_gradient_there(std::size_t i) override;
  Value weights(std::size_t i) override;
  bool wants_weights_gradient(std::size_t i) const override { return graph_.learns(*at_.node, i); }
  Value weights_gradient(std::size_t i) override;
  Value kept(const std::string& name, const Dims& dims, DataType type) override;
  void keep(const std::string& name, Value value) override;
  std::vector<Value> kept_by_replicas(const std::string& name) override;
  std::vector<std::int64_t> images_of_replicas() const override;
  bool first_replica() const override { return at_.microbatch % at_.node->replicas() == 0; }
  Value source(std::size_t matrix) override;
  Dims whole_image(std::size_t matrix) const override { return set_.matrices_[matrix].whole; }
  Value mean_image() override;
  Value step() override { return Value{set_.step_buffer(at_.device)}; }
  Value costs() override { return Value{set_.costs_buffer(at_.device)}; }
  std::int64_t cost_slot() const override;
  void run(const OpDesc& op, const std::vector<Value>& values) override { run_op(op, values, false); }
  void run_across(const OpDesc& op, const std::vector<Value>& values) override { run_op(op, values, true); }
  void forward_unchanged() override;
  void backward_unchanged(std::size_t i) override;

 private:
  /// One tensor of the plan under construction. It may exist in several layouts and on several devices at
  /// once: `buffer` is the primary one, `copies` are made by reorders and die when the tensor is written.
  /// Plain buffers have the tensor's dims; others may have the dims of another shape of as many elements,
  /// which an operation reads or writes.
  struct PlannedTensor {
    std::string name;
    BufferKind kind = BufferKind::activation;
    int device = 0;
    Dims dims;
    DataType type = DataType::f32;
    int buffer = -1;
    std::vector<int> copies;
    std::optional<TensorDesc> preferred;  ///< layout to suggest to the operation that first writes it
    bool pinned = false;                  ///< must not be overwritten in place
    std::int64_t begin = 0, bytes = -1;   ///< the part of the buffer that it is
  };

  /// State of a node for one microbatch.
  struct NodeState {
    Value output, gradient;
    std::vector<Value> remote_gradients;  ///< made on other devices, to be added
    bool recompute = false;               ///< the output is gone: backward makes it again where it reads it
    std::map<std::string, Value> kept;
  };

  /// A gradient that the operation being written down makes, to be added to what is there.
  struct PendingSum {
    Value from;
    Value* into = nullptr;
    int node = -1;  ///< whose gradient it is; -1: of weights
  };

  /// A shard of a matrix whose step is due. Steps are made together, in one task for a device: small matrices
  /// are many.
  struct PendingStep {
    int node = -1;      ///< the owner of the matrix
    int device = 0;     ///< the owner of the shard
    bool sums = false;  ///< gradients of other replicas
    Update::Part part;
    std::vector<BufferUse> uses;  ///< the part's arguments
  };

  /// A range of a matrix that a replica fetches from another.
  struct FetchedRange {
    int node = -1;
    int from = 0, to = 0;  ///< buffers
    std::int64_t begin = 0, count = 0;
  };

  /// Whose operations are being written down.
  struct At {
    const Node* node = nullptr;
    int microbatch = 0;
    int device = 0;
    bool backward = false;
    bool recomputing = false;  ///< a forward within backward
  };

  void enter(const Node& node, int microbatch, bool backward);
  void update_complete(const Node& node);
  void forward_run(const Node& node, int run);
  void backward_run(const Node& node, int run);
  /// Those of the replicas that run together, and have images.
  std::vector<int> microbatches_of_run(const Node& node, int run) const;
  std::vector<int> microbatches_of_this_run() const;
  bool inputs_stay();
  NodeState& state(int node);
  int home(int node) const { return graph_.nodes[static_cast<std::size_t>(node)].device(at_.microbatch); }
  const Node& input_node() const { return graph_.nodes[static_cast<std::size_t>(at_.node->inputs[0])]; }
  Value output_of(int id);
  void note(const char* does, const std::string& what, const char* how);
  Value in_place_output();
  void set_output(Value v);

  Value new_input_gradient(std::size_t i, int device);
  Value add_input_gradient(std::size_t i, Value written);
  bool shared_gradient(Value gradient, int except) const;
  void add_gradient(Value part, Value& sum, int of);
  void sum_remote_gradients();

  const WeightBuffers& weight_buffers(std::size_t i) const;
  void decide_weights(WeightBuffers& w, const TensorDesc& desc);
  void decide_persistent(int id, const TensorDesc& desc);
  void update(WeightBuffers& w, std::int64_t images);
  void make_updates();
  void make_steps(int device, bool sums);
  void constrain(const WeightBuffers& w);
  void publish(const std::vector<FetchedRange>& ranges);
  void publish_state(const Node& node);
  int broken();

  PlannedTensor& tensor(Value v) { return tensors_.at(static_cast<std::size_t>(v.id)); }
  Buffer& buffer(int id) { return plan_.buffers[static_cast<std::size_t>(id)]; }
  Value add(PlannedTensor t);
  Value add_like(Value other, std::string name, BufferKind kind, int device);
  int add_buffer(std::string name, BufferKind kind, int device, TensorDesc desc);
  void decide_layout(const PlannedTensor& weights, const TensorDesc& desc);
  std::optional<TensorDesc> gradient_of_weights(const OpDesc& op) const;
  /// Whether operations see the tensor by its dims; the step block and the costs are just bytes.
  static bool has_shape(const PlannedTensor& t) {
    return t.kind != BufferKind::step && t.kind != BufferKind::costs;
  }
  bool holds(int id, const TensorDesc& want, int device);
  int version(PlannedTensor& t, const TensorDesc& want, int device);
  int source_of(PlannedTensor& t, const TensorDesc& want, int device);
  Task new_task(TaskKind kind, OpDesc op, std::shared_ptr<const PreparedOp> prepared) const;
  void add_workspace(Task& task);
  bool runs_beside(const Task& task) const;
  LayoutHints hints_for(const std::vector<Argument>& args, const std::vector<Value>& values);
  int bind(PlannedTensor& t, const Argument& arg, TensorDesc want, int device);
  void rebind(PlannedTensor& t, int id);
  void run_op(const OpDesc& op, const std::vector<Value>& values, bool across);
  void emit(TaskKind kind, const OpDesc& op, const std::vector<Value>& values, bool across = false);
  void finish_persistent();

  PlanSet& set_;
  const Graph& graph_;
  Plan plan_;
  std::vector<PlannedTensor> tensors_;          ///< the first ones are the persistent buffers, by their index
  std::vector<std::vector<NodeState>> states_;  ///< by node and microbatch; not of data layers
  std::map<std::tuple<int, int, int>, NodeState> loaded_;  ///< data layers, by node, microbatch and device
  std::map<int, Value> weight_gradients_;                  ///< by the weights' buffer, of the open window
  std::vector<int> backward_done_;                         ///< by node: microbatches that have been backward
  std::vector<int> updated_;  ///< by PlanSet::weights_: microbatches whose gradients are in it
  std::vector<PendingSum> pending_sums_;
  std::vector<PendingStep> pending_steps_;
  std::vector<const WeightBuffers*> pending_updates_;  ///< the matrices of the pending steps
  std::int64_t pending_bytes_ = 0;                     ///< of these matrices
  std::vector<int> broken_;                            ///< by device: this pass's buffer, see broken()
  At at_;
  int pass_ = 0;
};

}  // namespace convnet
