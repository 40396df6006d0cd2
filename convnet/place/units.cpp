#include "convnet/place/units.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "convnet/base/disjoint_sets.h"

namespace convnet {
namespace {

class UnitFinder {
 public:
  explicit UnitFinder(const Graph& graph)
      : graph_(graph), units_(graph.nodes.size()), counts_(graph.nodes.size()) {}

  PlacementUnits find() {
    for (const Node& node : graph_.nodes) join_followers(node);
    for (const Node& node : graph_.nodes) join_counts(node);
    join_normalised();
    find_reachable();
    while (join_lines()) {
    }
    return result();
  }

 private:
  const Node& at(NodeId id) const { return graph_.nodes[id]; }
  bool is_data(NodeId id) const { return at(id).role == LayerRole::data; }
  bool same_unit(NodeId a, NodeId b) { return units_.find(a.index()) == units_.find(b.index()); }
  void join(NodeId a, NodeId b) {
    units_.join(a.index(), b.index());
    counts_.join(a.index(), b.index());
  }

  /// The input that a layer without gpu= follows; none if all are data.
  NodeId first_layer_below(const Node& node) const {
    for (const NodeId input : node.inputs) {
      if (!is_data(input)) return input;
    }
    return {};
  }

  void join_followers(const Node& node) {
    for (const WeightOwner& owner : node.owners) join(node.id, owner.node);
    if (node.role == LayerRole::data) {
      // Labels go with the other input of their cost, images with their first user.
      for (const NodeId user : node.users) {
        if (const NodeId other = first_layer_below(at(user)); other.exists()) return join(node.id, other);
      }
      if (!node.users.empty()) join(node.id, node.users[0]);
    } else if (node.implicit) {
      join(node.id, node.inputs[0]);
    } else if (node.layer->weights.empty()) {
      const NodeId below = first_layer_below(node);
      if (below.exists())
        join(node.id, below);
      else if (!node.users.empty())
        join(node.id, node.users[0]);
    } else if (node.layer->facts.sees != SeesImages::own) {
      // Batch normalisation stays with what it normalises.
      if (const NodeId below = first_layer_below(node); below.exists()) join(node.id, below);
    }
  }

  /// All inputs of a layer have equal numbers of replicas, and so have all of its users.
  void join_counts(const Node& node) {
    for (const NodeId input : node.inputs) counts_.join(node.inputs[0].index(), input.index());
    for (const NodeId user : node.users) counts_.join(node.users[0].index(), user.index());
  }

  /// Layers that see the whole minibatch have as many replicas as any, so they have equal numbers.
  void join_normalised() {
    NodeId first;
    for (const Node& node : graph_.nodes) {
      if (node.layer->facts.sees == SeesImages::own) continue;
      if (first.exists()) counts_.join(first.index(), node.id.index());
      if (!first.exists()) first = node.id;
    }
  }

  /// Finds which nodes each node can be reached from.
  void find_reachable() {
    below_.resize(graph_.nodes.size());
    for (const Node& node : graph_.nodes) {
      below_[node.id].assign(graph_.nodes.size(), false);
      for (const NodeId input : node.inputs) {
        if (is_data(input)) continue;
        below_[node.id][input.index()] = true;
        for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
          if (below_[input][i]) below_[node.id][i] = true;
      }
    }
  }

  bool in_line(NodeId a, NodeId b) const { return below_[a][b.index()] || below_[b][a.index()]; }

  /// Joins units with equal numbers of replicas that lie in a line: different devices would only make the
  /// second wait for copies. Returns whether there were any.
  bool join_lines() {
    bool joined = false;
    for (const Node& a : graph_.nodes) {
      for (const Node& b : graph_.nodes) {
        if (b.id <= a.id || counts_.find(a.id.index()) != counts_.find(b.id.index())) continue;
        if (same_unit(a.id, b.id) || !in_line(a.id, b.id)) continue;
        join(a.id, b.id);
        joined = true;
      }
    }
    return joined;
  }

  bool reach_each_other(const PlacementUnit& a, const PlacementUnit& b) const {
    return std::any_of(a.nodes.begin(), a.nodes.end(), [&](NodeId x) {
      return std::any_of(b.nodes.begin(), b.nodes.end(), [&](NodeId y) { return in_line(x, y); });
    });
  }

  PlacementUnits result() {
    PlacementUnits found;
    std::map<std::size_t, std::size_t> index;  // of a unit, by its set
    std::map<std::size_t, int> groups;         // by their sets
    std::map<NodeId, std::size_t> unit_of;
    // Units come in the order of their first layers; labels are data, and stand before all of them.
    std::vector<NodeId> order(graph_.nodes.ids().begin(), graph_.nodes.ids().end());
    std::stable_partition(order.begin(), order.end(), [&](NodeId id) { return !is_data(id); });
    for (const NodeId id : order) {
      const Node& node = at(id);
      const auto [place, fresh] = index.try_emplace(units_.find(node.id.index()), found.units.size());
      if (fresh) {
        found.units.emplace_back();
        const auto group = groups.try_emplace(counts_.find(node.id.index()), static_cast<int>(groups.size()));
        found.units.back().group = group.first->second;
      }
      unit_of[node.id] = place->second;
      found.units[place->second].nodes.push_back(node.id);
    }
    for (PlacementUnit& unit : found.units) {
      std::sort(unit.nodes.begin(), unit.nodes.end());
      add_facts(unit);
    }
    for (PlacementUnit& unit : found.units) {
      unit.beside_another = std::any_of(
          found.units.begin(), found.units.end(),
          [&](const PlacementUnit& other) { return &other != &unit && !reach_each_other(unit, other); });
    }
    std::set<std::pair<std::size_t, NodeId>> known;
    for (const Node& node : graph_.nodes) {
      for (const NodeId input : node.inputs) {
        const std::size_t from = unit_of[input], to = unit_of[node.id];
        if (from != to && !is_data(input) && known.emplace(to, input).second)
          found.edges.push_back({from, to, input});
      }
    }
    return found;
  }

  void add_facts(PlacementUnit& unit) const {
    bool weights = false, divisible = true;
    for (const NodeId id : unit.nodes) {
      const Layer& layer = *at(id).layer;
      unit.sees_minibatch = unit.sees_minibatch || layer.facts.sees != SeesImages::own;
      if (layer.weights.empty()) continue;
      weights = true;
      divisible = divisible && layer.facts.division == Division::outputs;
    }
    unit.divisible = weights && divisible;
  }

  const Graph& graph_;
  DisjointSets units_, counts_;
  Table<NodeId, std::vector<bool>>
      below_;  ///< by node: whether each node is one that it reads, maybe indirectly
};

}  // namespace

PlacementUnits find_units(const Graph& graph) { return UnitFinder(graph).find(); }

}  // namespace convnet
