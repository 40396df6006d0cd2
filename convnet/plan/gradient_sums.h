// Gradients of layers' outputs and of weights, where several users add to one.
#pragma once

#include <utility>
#include <vector>

#include "convnet/plan/emitter.h"

namespace convnet {

/// Knows the gradient of each layer's output for each microbatch, and sums what several users contribute,
/// always in the order of the backward pass.
class GradientSums {
 public:
  /// Both must outlive the sums.
  GradientSums(const Graph& graph, TaskEmitter& emitter);

  /// Returns the gradient of a layer's output as far as it is known; it does not exist before the first user.
  Value of(NodeId node, int microbatch) const { return at(node, microbatch).here; }
  /// Whether a node up to `last`, other than `except`, reads `gradient` as its own: then nobody may write
  /// over it.
  bool is_shared(Value gradient, int microbatch, NodeId last, NodeId except) const;

  /// `written`, which the next operation writes, is a user's contribution to the gradient of `node`, whose
  /// home is `home`. A contribution made on another device waits for gather().
  void contribute(NodeId node, int microbatch, DeviceId home, Value written);
  /// A contribution that has been written already; added at once.
  void contribute_unchanged(NodeId node, DeviceId home, Value own, TaskPlace place, NodeId last);
  /// `written`, which the next operation writes, is added to `sum`, a gradient of weights.
  void contribute_to_weights(Value written, Value& sum);
  /// Adds what the operation just written down has contributed. `last`: the node that is running backward.
  void add_contributions(TaskPlace place, NodeId last);

  /// Contributions that wait for the operation being written down; put aside while another one is written.
  struct Pending {
    Value from;
    Value* into = nullptr;
    NodeId node;  ///< whose gradient it is; none: of weights
  };
  std::vector<Pending> put_aside() { return std::exchange(pending_, {}); }
  void resume(std::vector<Pending> pending) { pending_ = std::move(pending); }

  /// Sums the gradients that users on other devices made, in the order of the backward pass, after those made
  /// at home. `output`: the layer's output, which the gradient lies like.
  void gather(const Node& node, Value output, TaskPlace place);

 private:
  struct Gradient {
    Value here;
    std::vector<Value> remote;  ///< made on other devices, to be added
  };
  Gradient& at(NodeId node, int microbatch) { return gradients_[node][static_cast<std::size_t>(microbatch)]; }
  const Gradient& at(NodeId node, int microbatch) const {
    return gradients_[node][static_cast<std::size_t>(microbatch)];
  }
  void add(Value part, Value& sum, NodeId of, TaskPlace place, NodeId last);

  TaskEmitter& emitter_;
  Table<NodeId, std::vector<Gradient>> gradients_;  ///< by node and microbatch
  std::vector<Pending> pending_;
};

}  // namespace convnet
