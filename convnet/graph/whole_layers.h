// Layers and their tensors as files and checkpoints have them, whatever devices the layers are divided over.
//
//   for (const Node* node : whole_layers(graph))         // a divided layer once
//     for (std::size_t i = 0; i < node->layer->weights.size(); ++i)
//       print(whole_matrix(graph, {node->id, i}).dims);  // those of all its parts together
#pragma once

#include <string>
#include <vector>

#include "convnet/graph/graph.h"

namespace convnet {

/// The place of a node's part in a tensor of the whole layer. Layers that are not divided have one part.
struct WholeMatrix {
  Dims dims;                          ///< of the whole matrix, which is what checkpoints hold
  std::int64_t begin = 0, count = 0;  ///< the numbers of it that the part has, as a run
  bool is_first() const { return begin == 0; }
};
struct WholeOutput {
  FeatureShape shape;      ///< of the whole output
  std::int64_t begin = 0;  ///< index of the part's first element
};

/// Returns a node for each layer, in order: its only one, or that of its first part. Gathers are no layers.
std::vector<const Node*> whole_layers(const Graph& graph);
/// Returns the node of that list for the layer of this name, or null.
const Node* find_layer(const Graph& graph, const std::string& name);
WholeMatrix whole_matrix(const Graph& graph, const WeightOwner& part);
WholeOutput whole_output(const Node& part);

}  // namespace convnet
