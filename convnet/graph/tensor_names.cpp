#include "convnet/graph/tensor_names.h"

#include <algorithm>
#include <map>

#include "convnet/graph/whole_layers.h"

namespace convnet {
namespace {

void check_nodes(const Graph& graph, Diagnostics& diagnostics) {
  std::map<std::string, const Node*> by_section;
  for (const Node& node : graph.nodes) by_section.try_emplace(node.section, &node);
  for (const Node& part : graph.nodes) {
    const auto layer = by_section.find(part.name);
    if (layer == by_section.end() || part.section == part.name) continue;
    diagnostics.error(layer->second->where, "layer '" + part.name + "': has the name of a part of layer '" +
                                                part.section + "' (" + part.where.str() +
                                                "), which is divided over devices; rename one of them");
  }
}

void check_tensors(const Graph& graph, Diagnostics& diagnostics) {
  std::map<std::string, const Node*> first;
  for (const Node* layer : whole_layers(graph)) {
    const Node& node = *layer;
    for (std::size_t i = 0; i < node.owners.size(); ++i) {
      const WeightSpec& spec = node.layer->weights[i];
      if (node.owners[i] != WeightOwner{node.id, i}) continue;
      std::vector<std::string> names = {node.layer_name + "." + spec.name};
      for (const char* suffix : kTrainingSuffixes)
        names.push_back(increment_name(node.layer_name, spec.name, suffix));
      for (const std::string& name : names) {
        const auto [other, is_new] = first.try_emplace(name, &node);
        if (is_new) continue;
        diagnostics.error(node.where, "layer '" + node.section + "': its tensor '" + name +
                                          "' would have the name of one of layer '" + other->second->section +
                                          "' (" + other->second->where.str() +
                                          ") in checkpoints; rename one of the layers");
        return;  // the others follow from the same two names
      }
    }
  }
}

}  // namespace

std::string increment_name(const std::string& layer, const std::string& weight, const char* suffix) {
  const std::size_t dot = std::min(weight.find('.'), weight.size());
  return layer + "." + weight.substr(0, dot) + suffix + weight.substr(dot);
}

void check_names(const Graph& graph, Diagnostics& diagnostics) {
  check_nodes(graph, diagnostics);
  check_tensors(graph, diagnostics);
}

}  // namespace convnet
