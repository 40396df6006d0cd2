#include "convnet/graph/gradients.h"

#include <string>
#include <vector>

namespace convnet {

void mark_gradients(Graph& graph) {
  for (Node& node : graph.nodes) {
    for (std::size_t i = 0; i < node.layer->weights.size(); ++i)
      node.learns_below = node.learns_below || graph.learns(node, i);
    for (const NodeId input : node.inputs) {
      if (graph.nodes[input].learns_below) node.learns_below = true;
    }
  }
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (node->is_cost()) node->gets_gradient = node->layer->facts.cost->coeff != 0 && node->learns_below;
    if (!node->gets_gradient) continue;
    for (std::size_t i = 0; i < node->inputs.size(); ++i) {
      // The labels of a cost are constants, even where a layer makes them.
      if (node->is_cost() && i + 1 < node->inputs.size()) continue;
      Node& in = graph.nodes[node->inputs[i]];
      in.gets_gradient = in.gets_gradient || in.learns_below;
    }
  }
}

void warn_of_idle_weights(const Graph& graph, Diagnostics& diagnostics) {
  std::vector<std::string> layers;
  SourceLocation first;
  for (const Node& node : graph.nodes) {
    for (std::size_t i = 0; i < node.owners.size(); ++i) {
      const WeightOwner own{node.id, i};
      if (node.owners[i] != own || !graph.learns(node, i) || !graph.gradient_sources(own).empty()) continue;
      if (layers.empty()) first = node.where;
      if (layers.empty() || layers.back() != node.section) layers.push_back(node.section);
    }
  }
  if (layers.empty()) return;
  diagnostics.warning(first,
                      "no gradient of a cost reaches weights of " + join(layers) +
                          ": they stay as they are, without decay (costs with coeff=0 make no gradient, "
                          "nor do the labels of a cost)");
}

}  // namespace convnet
