#include "convnet/graph/idle_weights.h"

#include <algorithm>

namespace convnet {
namespace {

/// Whether some layer adds to the gradient of matrix `i` of `owner`.
bool gets_gradient(const Graph& graph, const Node& owner, int i) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& user) {
    if (!user.gets_gradient) return false;
    for (std::size_t k = 0; k < user.owners.size(); ++k) {
      if (user.owners[k] == WeightOwner{owner.id, i} && graph.learns(user, k)) return true;
    }
    return false;
  });
}

}  // namespace

void warn_of_idle_weights(const Graph& graph, Diagnostics& diagnostics) {
  std::vector<std::string> layers;
  SourceLocation first;
  for (const Node& node : graph.nodes) {
    for (std::size_t i = 0; i < node.owners.size(); ++i) {
      const int index = static_cast<int>(i);
      if (node.owners[i] != WeightOwner{node.id, index} || !graph.learns(node, i) ||
          gets_gradient(graph, node, index))
        continue;
      if (layers.empty()) first = node.where;
      if (std::find(layers.begin(), layers.end(), node.section) == layers.end())
        layers.push_back(node.section);
    }
  }
  if (layers.empty()) return;
  diagnostics.warning(first, "no cost with a coeff other than 0 lies above " + join(layers) +
                                 ": the weights there get no gradient and stay as they are, without decay");
}

}  // namespace convnet
