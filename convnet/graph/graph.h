// The layer graph: what a net computes, checked and with all shapes known, and on which devices.
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
  /// As in the file; implicit layers are "<layer>_dropout" and "<layer>_neuron", with ".1" where the file has
  /// a layer of that name.
  std::string name;
  std::string whole;    ///< of a part of a layer (parallel=model): that layer's name; else `name`
  std::string section;  ///< of the definition file that it comes from
  std::string type;
  LayerRole role = LayerRole::other;
  std::shared_ptr<const Layer> layer;
  std::vector<int> inputs;          ///< node ids, all smaller than id
  std::vector<int> users;           ///< node ids in order; a node that reads it twice stands twice
  std::vector<int> gpus;            ///< indices into --gpu, one per replica
  std::vector<int> part_gpus;       ///< divided over these devices (parallel=model) until that is expanded
  std::vector<WeightOwner> owners;  ///< of layer->weights: itself, or the layer whose weights it shares
  std::vector<int> children;        ///< costs: those whose values are added to this one's
  bool is_child = false;            ///< a cost that another one prints
  bool implicit = false;            ///< made from a key of the layer below, or by a rewrite
  SourceLocation where;
  SourceLocation gpu_where;  ///< the gpu= line, or `where`
  bool placed = false;       ///< has a gpu= line

  bool weights_below = false;  ///< this node or one below it has weights
  bool learns_below = false;   ///< this node or one below it has weights that are trained
  bool gets_gradient = false;  ///< a cost with coeff != 0 lies above, and something at or below learns
  bool fused = false;          ///< a rewrite applies to it; its layer type knows which

  /// By how often the layer has run in this minibatch: the pass of its next run.
  std::vector<int> forward_pass, backward_pass;
  int update_period = 1;  ///< passes that make one update of its weights; may span several minibatches
  std::int64_t first_element = 0;  ///< of a part: its first output

  int replicas() const { return static_cast<int>(gpus.size()); }
  int device(int microbatch) const { return gpus[static_cast<std::size_t>(microbatch % replicas())]; }
  bool is_cost() const { return role == LayerRole::cost; }
};

/// A net. Nodes are in topological order (that of the file).
///
/// A minibatch is cut into `microbatches`, as many as the layer with most replicas has. Replica r of a layer
/// with K replicas works on microbatches r, r + K, ..., one a run.
struct Graph {
  std::vector<Node> nodes;
  int microbatches = 1;
  int passes = 1;                     ///< of a minibatch: most replicas / fewest replicas
  std::vector<std::string> rewrites;  ///< one line each, for `convnet plan --verbose`
  bool in_place = true;               ///< layers may write over inputs that nobody else reads
  std::vector<int> replica_counts() const;
  /// Images of one microbatch of a minibatch: the last ones may have fewer, or none. Views of an image are
  /// not torn apart.
  std::int64_t images_of(std::int64_t images, int microbatch, std::int64_t views = 1) const;
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
      true;         ///< fuse layers and work in place; off only to look for the cause of a NaN, and in tests
  int devices = 0;  ///< in --gpu; 0: any number
  bool data_parallel = false;  ///< every layer on all devices, whatever the file says
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
