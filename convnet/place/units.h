// The layers of a net that are placed together, and the rules between their places.
#pragma once

#include <vector>

#include "convnet/graph/graph.h"

namespace convnet {

/// Layers that run on the same devices: a layer with weights, those without weights that follow it, and all
/// layers that the rules of docs/parallelism.md tie to them (the trunk of a residual net is one unit).
struct PlacementUnit {
  std::vector<NodeId> nodes;    ///< in ascending order
  int group = 0;                ///< units of one group have equal numbers of replicas
  bool divisible = false;       ///< it has weights, and all of its layers with weights allow parallel=model
  bool sees_minibatch = false;  ///< gives the results of one device only if no other unit has more replicas
  bool beside_another = false;  ///< there is a unit that it neither reads nor feeds; both may run at once
};

/// An output of one unit that another unit reads. Outputs of data layers are not listed, because each device
/// loads its own data.
struct PlacementEdge {
  std::size_t from = 0, to = 0;  ///< units
  NodeId node;                   ///< the node with this output, in unit `from`
};

struct PlacementUnits {
  std::vector<PlacementUnit> units;  ///< in the order of their first nodes
  std::vector<PlacementEdge> edges;  ///< each pair of unit and node once, in order
};

/// Finds the units of a graph. All of its layers must be on one device, and none may be divided.
PlacementUnits find_units(const Graph& graph);

}  // namespace convnet
