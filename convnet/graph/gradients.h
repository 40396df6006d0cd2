// Finds the layers that gradients flow through: those between a cost and weights that learn.
#pragma once

#include "convnet/config/diagnostics.h"
#include "convnet/graph/graph.h"

namespace convnet {

/// Fills in Node::learns_below and Node::gets_gradient.
void mark_gradients(Graph& graph);

/// Warns of layers whose weights have learning rates but are never updated, because no cost's gradient
/// reaches them. Needs mark_gradients().
void warn_of_idle_weights(const Graph& graph, Diagnostics& diagnostics);

}  // namespace convnet
