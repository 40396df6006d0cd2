#include "convnet/graph/rewrites.h"

#include "kernels/functors.h"

namespace convnet {
namespace {

bool fuses_neuron(const LayerFacts& below, const LayerFacts& above) {
  switch (below.fuses_neuron) {
    case FusesNeuron::no: return false;
    case FusesNeuron::relu:
    case FusesNeuron::relu_and_gradient: return above.neuron.kind == NeuronKind::relu;
    case FusesNeuron::quick_and_gradient: return is_quick(above.neuron);
  }
  return false;
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
    if (fuses_neuron(below.layer->facts, node.layer->facts)) {
      graph.rewrites.push_back("'" + below.name + "' applies the " +
                               neuron_name(node.layer->facts.neuron.kind) + " of '" + node.name + "'");
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
