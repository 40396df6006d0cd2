// Layers that are divided over devices (parallel=model).
#pragma once

#include "convnet/graph/graph.h"

namespace convnet {

/// Replaces every node that has NodeDivision::gpus by one node for each part, and adds gathers (layers of
/// type pass) for users that need all outputs.
void expand_parts(Graph& graph);

}  // namespace convnet
