#include "convnet/graph/idle_weights.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace convnet {

void warn_of_idle_weights(const Graph& graph, Diagnostics& diagnostics) {
  // By node and index: the matrices that some layer adds a gradient to.
  std::set<std::pair<int, int>> reached;
  for (const Node& user : graph.nodes) {
    for (std::size_t i = 0; user.gets_gradient && i < user.owners.size(); ++i) {
      if (graph.learns(user, i)) reached.emplace(user.owners[i].node, user.owners[i].index);
    }
  }
  std::vector<std::string> layers;
  SourceLocation first;
  for (const Node& node : graph.nodes) {
    for (std::size_t i = 0; i < node.owners.size(); ++i) {
      const WeightOwner& owner = node.owners[i];
      if (owner.node != node.id || !graph.learns(node, i) || reached.contains({owner.node, owner.index}))
        continue;
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
