// Sums the gradients of layers' outputs and of weights to which several users contribute.
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
  /// Returns whether `gradient` is also the gradient of another node than `except`, up to `last`. Such a
  /// tensor must not be overwritten.
  bool is_shared(Value gradient, int microbatch, NodeId last, NodeId except) const;

  /// Records that `written`, which the next operation writes, is a user's contribution to the gradient of
  /// `node` on device `home`. A contribution that is made on another device waits for gather().
  void contribute(NodeId node, int microbatch, DeviceId home, Value written);
  /// Adds a contribution that has been written already.
  void contribute_unchanged(NodeId node, DeviceId home, Value own, TaskPlace place, NodeId last);
  /// Records that `written`, which the next operation writes, is a contribution to `sum`, a gradient of
  /// weights.
  void contribute_to_weights(Value written, Value& sum);
  /// Adds the contributions of the operation just written down. `last` is the node that is running backward.
  void add_contributions(TaskPlace place, NodeId last);

  /// A contribution recorded for the operation being written down.
  struct Pending {
    Value from;
    Value* into = nullptr;
    NodeId node;  ///< the node whose gradient it is part of; none for a gradient of weights
  };
  /// Remove the recorded contributions while another operation is written down, and put them back.
  std::vector<Pending> put_aside() { return std::exchange(pending_, {}); }
  void resume(std::vector<Pending> pending) { pending_ = std::move(pending); }

  /// Adds the gradients that users on other devices made, in the order of the backward pass, to the sum of
  /// those made on the layer's own device. `output` is the layer's output, whose layout the gradient gets.
  void gather(const Node& node, Value output, TaskPlace place);

 private:
  struct Gradient {
    Value here;
    std::vector<Value> remote;  ///< contributions from other devices, not yet added
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
