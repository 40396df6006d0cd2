// The layer graph: what a net computes, checked and with all shapes known, before any device is chosen.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "layers/layer.h"
#include "providers/provider.h"

namespace convnet {

/// Whose memory a matrix lives in.
struct WeightOwner {
  int node = 0, index = 0;  ///< into Graph::nodes and Layer::weights
  bool operator==(const WeightOwner&) const = default;
};

struct Node {
  int id = 0;
  std::string name;  ///< as in the file; implicit layers are "<layer>_dropout" and "<layer>_neuron"
  std::string type;
  LayerRole role = LayerRole::other;
  std::shared_ptr<const Layer> layer;
  std::vector<int> inputs;          ///< node ids, all smaller than id
  std::vector<int> users;           ///< node ids in order; a node that reads it twice stands twice
  std::vector<int> gpus;            ///< indices into --gpu, one per replica
  std::vector<WeightOwner> owners;  ///< of layer->weights: itself, or the layer whose weights it shares
  std::vector<int> children;        ///< costs: those whose values are added to this one's
  bool is_child = false;            ///< a cost that another one prints
  bool implicit = false;            ///< made from a key of the layer below
  SourceLocation where;

  bool weights_below = false;  ///< this node or one below it has weights
  bool learns_below = false;   ///< this node or one below it has weights that are trained
  bool gets_gradient = false;  ///< a cost with coeff != 0 lies above, and something at or below learns
  bool fused = false;          ///< a rewrite applies to it; its layer type knows which

  bool is_cost() const { return role == LayerRole::cost; }
};

/// A net. Nodes are in topological order (that of the file).
struct Graph {
  std::vector<Node> nodes;
  std::vector<std::string> rewrites;  ///< one line each, for `convnet plan --verbose`
  bool in_place = true;               ///< layers may write over inputs that nobody else reads
  std::vector<int> replica_counts() const;
  const Node* find(std::string_view name) const;
  int gpu_count() const;  ///< 1 + the largest index in any gpu= line
  const WeightSpec& weight(const WeightOwner& w) const {
    return nodes[static_cast<std::size_t>(w.node)].layer->weights[static_cast<std::size_t>(w.index)];
  }
  /// Whether matrix `i` of `node` adds to a gradient: neither it nor its owner is frozen.
  bool learns(const Node& node, std::size_t i) const {
    return node.layer->weights[i].learned() && weight(node.owners[i]).learned();
  }
};

struct GraphOptions {
  bool strict = false;  ///< unknown keys are errors
  bool rewrites =
      true;  ///< fuse layers and work in place; off only to look for the cause of a NaN, and in tests
};

/// Builds the graph of two files. Everything wrong goes to `diagnostics`; the graph is complete only without
/// errors.
Graph build_graph(const IniFile& definition, const IniFile& parameters,
                  const std::vector<MatrixInfo>& matrices, const GraphOptions& options,
                  Diagnostics& diagnostics);

/// What makes two definition files the same logical net: one line a layer with its keys in order, without
/// those that only place it on devices or set initial weights.
std::vector<std::string> logical_signature(const IniFile& definition);

}  // namespace convnet
