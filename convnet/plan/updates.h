// How a plan updates weights: sums over replicas, shards, constraints, and what every replica fetches
// afterwards.
#pragma once

#include <map>
#include <vector>

#include "convnet/plan/emitter.h"
#include "convnet/plan/net_buffers.h"

namespace convnet {

/// Follows the backward passes of the layers and writes down the updates that become due. The steps of
/// several matrices are made together, in one task for a device: small matrices are many.
class UpdateWriter {
 public:
  /// `plan`: its phase and images. All must outlive the writer.
  UpdateWriter(const Graph& graph, const NetBuffers& net_buffers, const Plan& plan, TaskEmitter& emitter);

  /// Returns the matrix whose weights are `i` of `node`.
  const WeightBuffers& weights(const Node& node, std::size_t i) const;
  /// The sum of the gradients of the weights in buffer `weights`, of the open window; it may not exist yet.
  Value& gradient(int weights) { return gradients_[weights]; }

  void begin_pass() { broken_.clear(); }
  /// `microbatches` of `node` have been backward: notes the updates that are due, and writes them down once
  /// they are enough for a task. `place` is the one of the last backward operation.
  void backward_done(const Node& node, int microbatches, TaskPlace place);
  /// Writes down all updates that are due.
  void flush(TaskPlace place);
  /// Statistics that the first replica of `node` keeps go to the others.
  void publish_state(const Node& node, TaskPlace place);

 private:
  /// A shard of a matrix whose step is due.
  struct Step {
    int node = -1;      ///< the owner of the matrix
    int device = 0;     ///< the owner of the shard
    bool sums = false;  ///< adds gradients of other replicas
    Update::Part part;
    std::vector<BufferUse> uses;  ///< the part's arguments
  };
  /// A range of a matrix that a replica fetches from another.
  struct FetchedRange {
    int node = -1;
    int from = 0, to = 0;  ///< buffers
    std::int64_t begin = 0, count = 0;
  };

  void note(const WeightBuffers& w, std::int64_t images, TaskPlace place);
  void make_steps(TaskPlace place, bool sums);
  void constrain(const WeightBuffers& w, TaskPlace place);
  void publish(const std::vector<FetchedRange>& ranges, TaskPlace place);
  int broken(int device, TaskPlace place);
  int devices() const { return static_cast<int>(net_buffers_.costs.size()); }
  int costs(int device) const { return net_buffers_.costs[static_cast<std::size_t>(device)]; }
  int step(int device) const { return net_buffers_.step[static_cast<std::size_t>(device)]; }

  const Graph& graph_;
  const NetBuffers& net_buffers_;
  const Plan& plan_;
  TaskEmitter& emitter_;
  std::vector<std::vector<int>> learners_;  ///< by matrix: the nodes that add to its gradient
  std::vector<int> backward_done_;          ///< by node: microbatches that have been backward
  std::vector<int> updated_;                ///< by matrix: microbatches whose gradients are in it
  std::map<int, Value> gradients_;          ///< by the weights' buffer, of the open window
  std::vector<Step> steps_;                 ///< noted, not yet written down
  std::vector<const WeightBuffers*> due_;   ///< the matrices of these steps
  std::int64_t due_bytes_ = 0;              ///< of these matrices
  std::vector<int> broken_;                 ///< by device: this pass's buffer, see broken()
};

}  // namespace convnet
