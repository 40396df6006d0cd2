// The buffers that live as long as the net: weights, their increments, mean images, step blocks and costs.
#pragma once

#include <cstdint>
#include <vector>

#include "convnet/plan/plan.h"

namespace convnet {

/// Options of all plans of a net.
struct PlanOptions {
  std::uint64_t seed = 1;
  bool mean = false;   ///< a mean image is subtracted from matrix 0
  bool learns = true;  ///< increments are kept, but for frozen matrices; false if the net will not be trained
  /// Outputs of cheap layers do not outlive the forward pass: backward computes them again.
  bool conserve_memory = false;
  int views = 1;              ///< number of views of each image in tests
  std::int64_t images = 128;  ///< images of the usual minibatch, for which the layouts of weights are chosen
  Topology topology = {};     ///< the hosts and processes of the devices
  Routes routes = Routes::relayed;
  bool clips = false;     ///< updates clip the gradient by its norm
  bool averages = false;  ///< running averages of the weights are kept
};

/// The persistent buffers of a net, with their layouts and places in memory. The buffers of every plan of the
/// net begin with `buffers`.
struct NetBuffers {
  Table<BufferId, Buffer> buffers;
  std::vector<WeightBuffers> weights;
  Table<NodeId, std::vector<std::size_t>> weights_of;  ///< by node and Layer::weights: index into `weights`
  Table<DeviceId, BufferId> mean;                      ///< empty where no mean image is subtracted
  Table<DeviceId, BufferId> step, costs;
  std::vector<CostSlot> cost_slots;
};

/// Makes the persistent buffers of a net: it chooses the layout of every matrix (the one that its layer's
/// forward operation wants for the usual minibatch), its replicas and shards, and the place of every buffer.
/// A pure function. Throws InputError if the gradient is to be clipped and layers are not updated together.
NetBuffers make_net_buffers(const Graph& graph, const std::vector<MatrixInfo>& matrices, const Target& target,
                            const PlanOptions& options);

}  // namespace convnet
