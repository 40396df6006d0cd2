// The buffers that live as long as the net: weights, their increments, mean images, step blocks and costs.
#pragma once

#include <cstdint>
#include <vector>

#include "convnet/plan/plan.h"

namespace convnet {

struct PlanOptions {
  std::uint64_t seed = 1;
  bool mean = false;   ///< a mean image is subtracted from matrix 0
  bool learns = true;  ///< increments are kept; false where nothing will be trained
  /// Outputs of cheap layers do not outlive the forward pass: backward computes them again.
  bool conserve_memory = false;
  int views = 1;              ///< views of each image in tests
  std::int64_t images = 128;  ///< of the usual minibatch, for which the layouts of weights are chosen
  Topology topology = {};     ///< of the devices
  bool clips = false;         ///< updates clip the gradient by its norm
  bool averages = false;      ///< running averages of the weights are kept
};

/// All of them have their layouts and places: every plan of a net begins with `buffers` as they are here.
struct NetBuffers {
  Table<BufferId, Buffer> buffers;
  std::vector<WeightBuffers> weights;
  Table<NodeId, std::vector<std::size_t>> weights_of;  ///< by node and Layer::weights: index into `weights`
  Table<DeviceId, BufferId> mean;                      ///< empty where no mean image is subtracted
  Table<DeviceId, BufferId> step, costs;
  std::vector<CostSlot> cost_slots;
};

/// Decides what outlives a step: the layout of every matrix (that which its layer's forward operation wants
/// for the usual minibatch), its replicas and shards, and the place of every buffer. A pure function.
/// Throws InputError if the gradient is to be clipped and layers are not updated together.
NetBuffers make_net_buffers(const Graph& graph, const std::vector<MatrixInfo>& matrices, const Target& target,
                            const PlanOptions& options);

}  // namespace convnet
