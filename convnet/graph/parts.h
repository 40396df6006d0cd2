// Layers that are divided over devices (parallel=model).
#pragma once

#include "convnet/graph/graph.h"

namespace convnet {

/// Replaces every node with part_gpus by a node per device, with gathers (pass layers) for the users that
/// need everything.
void expand_parts(Graph& graph);

}  // namespace convnet
