// Weights that are meant to learn and cannot.
#pragma once

#include "convnet/config/diagnostics.h"
#include "convnet/graph/graph.h"

namespace convnet {

/// Warns of layers whose weights have rates, but which no gradient of a cost reaches:
/// such weights are never updated. Needs Node::gets_gradient.
void warn_of_idle_weights(const Graph& graph, Diagnostics& diagnostics);

}  // namespace convnet
