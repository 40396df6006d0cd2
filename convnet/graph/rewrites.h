// Fusions of neighbouring layers.
#pragma once

#include "convnet/graph/graph.h"

namespace convnet {

/// Finds the pairs of layers that do their work together, by the facts of the layers (LayerFacts): a layer
/// that applies the neuron above it, and a cost that differentiates itself and the function below it at once.
/// Sets Node::fused of both and adds a line to Graph::rewrites.
void apply_rewrites(Graph& graph);

}  // namespace convnet
