#include "convnet/graph/parts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "convnet/config/text.h"

namespace convnet {
namespace {

/// Makes a new graph in which each divided node is replaced by a node for each of its parts.
class Expander {
 public:
  explicit Expander(Graph& graph) : old_(std::move(graph.nodes)), graph_(graph), parts_(old_.size()) {
    graph_.nodes.clear();
  }

  void run() {
    for (const Node& node : old_) {
      if (node.division.gpus.empty()) {
        add_undivided(node);
      } else {
        add_parts(node);
      }
    }
    for (Node& node : graph_.nodes) {
      for (NodeId& child : node.children) child = parts_[child][0];
    }
  }

 private:
  bool divided(NodeId old) const { return parts_[old].size() > 1; }

  NodeId add(Node node) {
    node.id = graph_.nodes.next_id();
    node.users.clear();
    node.division.gpus.clear();
    for (const NodeId input : node.inputs) graph_.nodes[input].users.push_back(node.id);
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().id;
  }

  void add_undivided(const Node& old) {
    Node node = old;
    for (NodeId& input : node.inputs) input = gathered(input, old.gpus);
    const NodeId self = graph_.nodes.next_id();
    for (WeightOwner& owner : node.owners) owner.node = owner.node == old.id ? self : parts_[owner.node][0];
    parts_[old.id] = {add(std::move(node))};
  }

  /// Returns the node that has all outputs of `old` for users on `gpus`: itself, or a gather of its parts.
  NodeId gathered(NodeId old, const std::vector<DeviceId>& gpus) {
    const std::vector<NodeId>& parts = parts_[old];
    if (!divided(old)) return parts[0];
    const auto known = gathers_.find({old, gpus});
    if (known != gathers_.end()) return known->second;
    Node gather = old_[old];
    gather.name = gather.layer_name = gather.name + "_gather/" + number_list(numbers_of(gpus));
    gather.type = "pass";
    gather.role = LayerRole::other;
    gather.implicit = gather.division.gather = true;
    gather.inputs = parts;
    gather.owners.clear();
    gather.gpus = gpus;
    std::vector<FeatureShape> shapes;
    for (const NodeId part : parts) shapes.push_back(graph_.nodes[part].layer->output);
    gather.layer = make_concat_layer(shapes);
    const NodeId id = add(std::move(gather));
    gathers_[{old, gpus}] = id;
    return id;
  }

  void add_parts(const Node& old) {
    const std::int64_t count = old.parts();
    const std::int64_t outputs = old.layer->output.size();
    std::vector<NodeId> ids;
    std::string sizes;
    std::int64_t first = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      // The first parts take the remainder. A layer with fewer outputs than devices has fewer parts.
      const std::int64_t size = outputs / count + (k < outputs % count ? 1 : 0);
      if (size == 0) break;
      Node node = old;
      node.name = old.name + "/" + std::to_string(k);
      node.layer = old.layer->part(first, size);
      node.division = {{}, old.layer, first, false};
      for (int replica = 0; replica < old.replicas(); ++replica)
        node.gpus[static_cast<std::size_t>(replica)] =
            old.division.gpus[static_cast<std::size_t>(replica * count + k)];
      for (NodeId& input : node.inputs) {
        const std::vector<NodeId>& parts = parts_[input];
        const bool as_inputs = old.layer->facts.division == Division::as_inputs;
        input = as_inputs && divided(input) ? parts[static_cast<std::size_t>(k)] : gathered(input, node.gpus);
      }
      const NodeId self = graph_.nodes.next_id();
      for (WeightOwner& owner : node.owners)
        owner.node = owner.node == old.id ? self : parts_[owner.node][static_cast<std::size_t>(k)];
      ids.push_back(add(std::move(node)));
      sizes += (sizes.empty() ? "" : "+") + std::to_string(size);
      first += size;
    }
    parts_[old.id] = std::move(ids);
    if (old.layer->facts.division == Division::outputs)
      graph_.rewrites.push_back(
          "'" + old.name + "' is divided over " + std::to_string(count) + " devices" +
          (old.replicas() > 1 ? " in each of " + std::to_string(old.replicas()) + " replicas" : "") + ": " +
          sizes + " outputs");
  }

  const Table<NodeId, Node> old_;
  Graph& graph_;
  Table<NodeId, std::vector<NodeId>> parts_;  ///< by old node: its new nodes
  std::map<std::pair<NodeId, std::vector<DeviceId>>, NodeId> gathers_;
};

}  // namespace

void expand_parts(Graph& graph) {
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                               [](const Node& n) { return !n.division.gpus.empty(); });
  if (any) Expander(graph).run();
}

}  // namespace convnet
