#include "convnet/graph/tensor_names.h"

#include <algorithm>
#include <map>

namespace convnet {
namespace {

/// Returns whether the program has made a node of this name; else it is the name of a section.
bool is_made(const Node& node) { return node.name != node.section; }

void check_nodes(const Graph& graph, Diagnostics& diagnostics) {
  std::map<std::string, const Node*> first;
  for (const Node& node : graph.nodes) {
    const auto [other, is_new] = first.try_emplace(node.name, &node);
    if (is_new) continue;
    const Node& written = is_made(node) ? *other->second : node;
    const Node& made = is_made(node) ? node : *other->second;
    diagnostics.error(written.where, "layer '" + written.section + "': has the name of a part of layer '" +
                                         made.section + "' (" + made.where.str() +
                                         "), which is divided over devices; rename one of them");
  }
}

void check_tensors(const Graph& graph, Diagnostics& diagnostics) {
  std::map<std::string, const Node*> first;
  for (const Node& node : graph.nodes) {
    for (std::size_t i = 0; i < node.owners.size(); ++i) {
      const WeightSpec& spec = node.layer->weights[i];
      // Parts of a matrix are one tensor.
      if (node.owners[i] != WeightOwner{node.id, i} || spec.first_output > 0) continue;
      std::vector<std::string> names = {node.whole + "." + spec.name};
      for (const char* suffix : kTrainingSuffixes)
        names.push_back(increment_name(node.whole, spec.name, suffix));
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
