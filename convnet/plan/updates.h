// How a plan updates weights: sums over replicas, shards, constraints, and what every replica fetches
// afterwards.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "convnet/plan/emitter.h"
#include "convnet/plan/net_buffers.h"

namespace convnet {

/// Follows the backward passes of the layers and writes down the updates that become due. The steps of
/// several matrices are made together, in one task for a device: small matrices are many.
class UpdateWriter {
 public:
  /// `plan`: its phase and images. `clips`: updates clip the gradient by its norm. All must outlive the
  /// writer.
  UpdateWriter(const Graph& graph, const NetBuffers& net_buffers, const Plan& plan, bool clips,
               TaskEmitter& emitter);

  /// Returns the matrix whose weights are `i` of `node`.
  const WeightBuffers& weights(const Node& node, std::size_t i) const;
  /// The sum of the gradients of the weights in buffer `weights`, of the open window; it may not exist yet.
  Value& gradient(BufferId weights) { return gradients_[weights]; }

  void begin_pass() { broken_.clear(); }
  /// `microbatches` of `node` have been backward: notes the updates that are due, and writes them down once
  /// they are enough for a task. `place` is the one of the last backward operation.
  void backward_done(const Node& node, int microbatches, TaskPlace place);
  /// Writes down all updates that are due.
  void flush(TaskPlace place);
  /// Moves the running averages of all weights on to the weights after the last update of a minibatch.
  void average(TaskPlace place);
  /// Statistics that the first replica of `node` keeps go to the others.
  void publish_state(const Node& node, TaskPlace place);

 private:
  /// A shard of a matrix whose step is due.
  struct Step {
    NodeId node;             ///< the owner of the matrix
    DeviceId device;         ///< the owner of the shard
    bool sums = false;       ///< adds gradients of other replicas
    std::size_t matrix = 0;  ///< index into NetBuffers::weights
    bool scaled = false;     ///< needs the norms of UpdateScales
    Update::Part part;
    // The part's arguments. `kept`: after the gradients.
    BufferUse weights, increment;
    std::vector<BufferUse> gradients, kept;
  };
  /// Sums of gradients that a device makes for the replicas of its host.
  struct HostSums {
    SumRuns op;
    std::vector<BufferUse> uses;  ///< the arguments of `op`
    std::set<NodeId> nodes;       ///< the owners of the matrices
  };
  /// A range of a matrix that a replica fetches from another.
  struct FetchedRange {
    NodeId node;
    BufferId from, to;
    std::int64_t begin = 0, count = 0;
  };
  /// Ranges that one replica of each other host fetches, and then those that its neighbours fetch from it.
  struct Fetches {
    std::vector<FetchedRange> between_hosts, within_hosts;
  };

  /// The replicas of a matrix, by host.
  HostGroups hosts_of(const WeightBuffers& w) const {
    return HostGroups(plan_.topology, graph_.nodes[w.node].gpus);
  }
  void note(std::size_t matrix, std::int64_t images, int update, TaskPlace place);
  std::vector<std::vector<BufferUse>> summands(const WeightBuffers& w,
                                               const std::vector<BufferId>& gradients);
  void sum_on_host(const WeightBuffers& w, const std::vector<BufferId>& gradients, int host,
                   const HostGroups& hosts, std::vector<std::vector<BufferUse>>& of_shards);
  void make_host_sums(TaskPlace place);
  void sum_gradients(TaskPlace place);
  void make_scales(TaskPlace place);
  void make_steps(TaskPlace place, bool sums);
  Stream update_stream(bool sums) const;
  void constrain(const WeightBuffers& w, TaskPlace place);
  void add_fetches(const WeightBuffers& w, const std::vector<UpdateShard>& shards, Fetches& fetches) const;
  void publish(const Fetches& fetches, TaskPlace place);
  void publish_ranges(const std::vector<FetchedRange>& ranges, TaskPlace place);
  BufferId broken(DeviceId device, TaskPlace place);
  void look_for_broken(TaskPlace place);
  BufferId any_broken(const std::vector<BufferId>& flags, DeviceId device, TaskPlace place);
  IdRange<DeviceId> devices() const { return net_buffers_.costs.ids(); }
  BufferId costs(DeviceId device) const { return net_buffers_.costs[device]; }
  BufferId step(DeviceId device) const { return net_buffers_.step[device]; }

  const Graph& graph_;
  const NetBuffers& net_buffers_;
  const Plan& plan_;
  const bool clips_;
  TaskEmitter& emitter_;
  std::vector<std::vector<NodeId>> learners_;  ///< by matrix: the nodes that add to its gradient
  Table<NodeId, int> backward_done_;           ///< microbatches that have been backward
  std::vector<int> updated_;                   ///< by matrix: microbatches whose gradients are in it
  std::map<BufferId, Value> gradients_;        ///< by the weights' buffer, of the open window
  std::vector<Step> steps_;                    ///< noted, not yet written down
  std::map<DeviceId, HostSums> host_sums_;     ///< what these steps need, by the device that sums
  std::vector<const WeightBuffers*> due_;      ///< the matrices of these steps
  std::int64_t due_bytes_ = 0;                 ///< of these matrices
  Table<DeviceId, BufferId> scales_;           ///< of these steps; empty if none is scaled
  std::int64_t scale_count_ = 0;               ///< pairs in each of them
  Table<DeviceId, BufferId> broken_;           ///< this pass's buffer, see broken()
};

}  // namespace convnet
