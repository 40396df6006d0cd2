#include "convnet/graph/whole_layers.h"

#include <algorithm>

namespace convnet {

std::vector<const Node*> whole_layers(const Graph& graph) {
  std::vector<const Node*> layers;
  for (const Node& node : graph.nodes) {
    if (node.division.first == 0 && !node.division.gather) layers.push_back(&node);
  }
  return layers;
}

const Node* find_layer(const Graph& graph, const std::string& name) {
  const auto node = std::ranges::find(graph.nodes, name, &Node::layer_name);
  return node == graph.nodes.end() ? nullptr : &*node;
}

WholeMatrix whole_matrix(const Graph& graph, const WeightOwner& part) {
  const NodeDivision& division = graph.nodes[part.node].division;
  const Dims& dims = graph.weight(part).dims;
  const std::int64_t count = element_count(dims);
  if (division.whole == nullptr) return {dims, 0, count};
  // Matrices that have parts count the outputs in their first dimension.
  return {division.whole->weights[part.index].dims, division.first * (count / dims[0]), count};
}

WholeOutput whole_output(const Node& part) {
  const NodeDivision& division = part.division;
  return {(division.whole == nullptr ? part.layer : division.whole)->output, division.first};
}

}  // namespace convnet
