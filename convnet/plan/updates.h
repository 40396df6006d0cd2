// Updates of weights in a plan: sums of gradients over replicas, steps by shards, constraints, and the
// all-gather of the new weights by all replicas.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "convnet/plan/emitter.h"
#include "convnet/plan/net_buffers.h"

namespace convnet {

/// Follows the backward passes of the layers and writes down the updates that become due. There are many
/// small matrices, so one task of a device updates several of them.
class UpdateWriter {
 public:
  /// Uses the phase, the number of images with their views, and the topology of `plan`. `clips` says whether
  /// updates clip the gradient by its norm. All arguments that are references must outlive the writer.
  UpdateWriter(const Graph& graph, const NetBuffers& net_buffers, const Plan& plan, bool clips,
               TaskEmitter& emitter);

  /// Returns the buffers of matrix `i` of `node`.
  const WeightBuffers& weights(const Node& node, std::size_t i) const;
  /// Returns the sum of the gradients, since the last update, of the weights in buffer `weights`. The value
  /// does not exist before the first gradient.
  Value& gradient(BufferId weights) { return gradients_[weights]; }

  /// Call it when the first `microbatches` microbatches of `node` have run backward; `place` is that of the
  /// last operation. Records the updates that are now due, and writes them down once they are enough for a
  /// task.
  void backward_done(const Node& node, int microbatches, TaskPlace place);
  /// Writes down all updates that are due. The next ones look at the costs again.
  void end_pass(TaskPlace place) {
    flush(place);
    non_finite_.clear();
  }
  /// Moves the running averages of all weights towards the weights, after the last update of a minibatch.
  void average(TaskPlace place);
  /// Sends the running statistics that replica `from` of `node` has updated to the other replicas.
  void broadcast_state(const Node& node, int from, TaskPlace place);

 private:
  /// A shard of a matrix whose step is due.
  struct Step {
    NodeId node;             ///< the node that owns the matrix
    DeviceId device;         ///< the device that updates the shard
    bool sums = false;       ///< the step adds gradients of other replicas
    std::size_t matrix = 0;  ///< index into NetBuffers::weights
    bool scaled = false;     ///< the step needs the factors of UpdateScales
    Update::Part part;
    // The arguments of `part`; those of `kept` come after the gradients.
    BufferUse weights, increment;
    std::vector<BufferUse> gradients, kept;
  };
  /// Sums of gradients that a device makes before the last stage of an exchange.
  struct PartialSums {
    SumRuns op;
    std::vector<BufferUse> uses;  ///< the arguments of `op`
    std::set<NodeId> nodes;       ///< the owners of the matrices
  };
  /// The gradients of a range that a member of an exchange has summed.
  struct Partial {
    int member = 0;
    BufferUse sum;
  };
  /// A range of a matrix that a replica fetches from another.
  struct FetchedRange {
    NodeId node;
    BufferId from, to;
    BufferId rounded;  ///< gets the range as bf16; may be none
    std::int64_t begin = 0, count = 0;
  };
  /// Ranges to be fetched, by the stage of the exchange; the last stage comes first.
  using Fetches = std::map<int, std::vector<FetchedRange>, std::greater<>>;

  /// The replicas of a matrix as they exchange its gradients and weights.
  const Exchange& exchange_of(const WeightBuffers& w) const {
    return emitter_.exchange(graph_.nodes[w.node].gpus);
  }
  void flush(TaskPlace place);
  void add_due_update(std::size_t matrix, std::int64_t images, int update, TaskPlace place);
  DataType gradient_type(const WeightBuffers& w, bool scaled);
  std::vector<std::vector<BufferUse>> summands(const WeightBuffers& w, const std::vector<BufferId>& gradients,
                                               DataType type);
  void sum_stage(const WeightBuffers& w, const Exchange& exchange, int stage,
                 std::vector<std::vector<Partial>>& of_shards);
  void make_partial_sums(TaskPlace place);
  void sum_gradients(TaskPlace place);
  void make_scales(TaskPlace place);
  void make_steps(TaskPlace place, bool sums);
  Stream update_stream(bool sums) const;
  void constrain(const WeightBuffers& w, TaskPlace place);
  bool scales_parts() const;
  void add_fetches(const WeightBuffers& w, const std::vector<UpdateShard>& shards, Fetches& fetches) const;
  void all_gather(const Fetches& fetches, TaskPlace place);
  BufferId non_finite_flag(DeviceId device, TaskPlace place);
  void combine_non_finite_flags(TaskPlace place);
  BufferId any_non_finite(const std::vector<BufferId>& flags, DeviceId device, TaskPlace place);
  IdRange<DeviceId> devices() const { return net_buffers_.costs.ids(); }
  BufferId costs(DeviceId device) const { return net_buffers_.costs[device]; }
  BufferId step(DeviceId device) const { return net_buffers_.step[device]; }

  const Graph& graph_;
  const NetBuffers& net_buffers_;
  const Plan& plan_;
  const bool clips_;
  /// Updates of a pass wait for all its gradients, because they need the norm of the whole gradient, or that
  /// of a matrix whose parts are several matrices here.
  const bool joins_norms_;
  TaskEmitter& emitter_;
  std::vector<std::vector<NodeId>> learners_;  ///< by matrix: the nodes that contribute to its gradient
  Table<NodeId, int> backward_done_;           ///< by node: number of microbatches that have run backward
  std::vector<int> updated_;                   ///< by matrix: number of microbatches in its updates so far
  std::map<BufferId, Value> gradients_;        ///< by the buffer of weights: sum since the last update
  std::vector<Step> steps_;                    ///< updates that are due, but not yet written down
  /// Sums that these steps need, by the stage and the device that sums.
  std::map<std::pair<int, DeviceId>, PartialSums> partial_sums_;
  std::vector<const WeightBuffers*> due_;  ///< the matrices of these steps
  std::int64_t due_bytes_ = 0;             ///< bytes of these matrices
  Table<DeviceId, BufferId> scales_;       ///< results of UpdateScales for these steps; empty if unused
  std::int64_t scale_count_ = 0;           ///< pairs of factors in each of them
  Table<DeviceId, BufferId> non_finite_;   ///< flags of this pass, made by non_finite_flag()
};

}  // namespace convnet
