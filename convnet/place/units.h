// The layers of a net that are placed together, and what binds their places.
#pragma once

#include <vector>

#include "convnet/graph/graph.h"

namespace convnet {

/// Layers that run on the same devices: one with weights, those without that follow it, and whatever the
/// rules of docs/parallelism.md tie to them in a line (the trunk of a residual net is one unit).
struct PlacementUnit {
  std::vector<NodeId> nodes;    ///< in ascending order
  int group = 0;                ///< units of one group have equal numbers of replicas
  bool divisible = false;       ///< has weights, and all layers that have can be divided (parallel=model)
  bool sees_minibatch = false;  ///< computes what one device does only if no unit has more replicas
  bool beside_another = false;  ///< neither reads nor feeds some other unit: both may work at the same time
};

/// An output that one unit reads of another. Data layers are not listed: each device loads its own data.
struct PlacementEdge {
  std::size_t from = 0, to = 0;  ///< units
  NodeId node;                   ///< whose output it is
};

struct PlacementUnits {
  std::vector<PlacementUnit> units;  ///< in the order of their first nodes
  std::vector<PlacementEdge> edges;  ///< each pair of unit and node once, in order
};

/// Finds the units of a graph whose layers are on one device, without divided ones.
PlacementUnits find_units(const Graph& graph);

}  // namespace convnet
