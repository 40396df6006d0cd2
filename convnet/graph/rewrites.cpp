#include "convnet/graph/rewrites.h"

namespace convnet {
namespace {

bool fuses_relu(const LayerFacts& below, const LayerFacts& above) {
  return above.function == LayerFunction::relu && below.fuses_relu != FusesRelu::no;
}

bool fuses_gradients(const LayerFacts& below, const LayerFacts& above) {
  return above.cost && above.cost->differentiates != LayerFunction::other &&
         above.cost->differentiates == below.function;
}

}  // namespace

void apply_rewrites(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (node.inputs.empty()) continue;
    // The last input of a cost is the one that gets its gradient; labels come before it.
    Node& below = graph.nodes[node.is_cost() ? node.inputs.back() : node.inputs[0]];
    if (below.users.size() != 1 || below.gpus != node.gpus) continue;
    if (fuses_relu(below.layer->facts, node.layer->facts)) {
      graph.rewrites.push_back("'" + below.name + "' applies the relu of '" + node.name + "'");
    } else if (fuses_gradients(below.layer->facts, node.layer->facts)) {
      graph.rewrites.push_back("the gradients of '" + below.name + "' and '" + node.name +
                               "' are one operation");
    } else {
      continue;
    }
    node.fused = below.fused = true;
  }
}

}  // namespace convnet
