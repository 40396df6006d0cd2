// The layer graph: what a net computes, checked and with all shapes known, and on which devices.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "convnet/base/ids.h"
#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "layers/layer.h"
#include "providers/provider.h"

namespace convnet {

/// The layer's matrix whose memory another one uses, or a matrix itself.
struct WeightOwner {
  NodeId node{0};
  std::size_t index = 0;  ///< into Layer::weights
  bool operator==(const WeightOwner&) const = default;
};

struct Node {
  NodeId id{0};
  /// The name in the file; implicit layers are "<layer>_dropout" and "<layer>_neuron", with ".1" where the
  /// file has a layer of that name.
  std::string name;
  std::string whole;    ///< for a part of a layer (parallel=model) the layer's name; else `name`
  std::string section;  ///< section of the definition file that it comes from
  std::string type;
  LayerRole role = LayerRole::other;
  std::shared_ptr<const Layer> layer;
  std::vector<NodeId> inputs;  ///< all smaller than id
  std::vector<NodeId> users;   ///< in order; a node that reads it twice stands twice
  std::vector<DeviceId> gpus;  ///< one per replica
  /// Devices it is divided over (parallel=model); expand_parts() empties it.
  std::vector<DeviceId> part_gpus;
  std::vector<WeightOwner> owners;  ///< by layer->weights: itself, or the layer whose weights it shares
  std::vector<NodeId> children;     ///< the costs whose values are added to this cost's
  bool is_child = false;            ///< its values are added to another cost's and not printed themselves
  bool implicit = false;            ///< has no section: comes from a key of the layer below, or is a gather
  bool gather = false;              ///< puts the parts of a layer together; made by expand_parts()
  SourceLocation where;
  SourceLocation gpu_where;  ///< the gpu= line, or `where`
  bool placed = false;       ///< has a gpu= line

  bool weights_below = false;  ///< this node or one below it has weights
  bool learns_below = false;   ///< this node or one below it has weights that are trained
  bool gets_gradient = false;  ///< a cost with coeff != 0 lies above, and something at or below learns
  bool fused = false;          ///< a rewrite applies to it; its layer's facts say which

  /// Passes of the layer's runs in a minibatch, in order: element i is the pass of run i.
  std::vector<int> forward_pass, backward_pass;
  int update_period = 1;  ///< passes that make one update of its weights; may span several minibatches
  std::int64_t first_element = 0;  ///< for a part of a layer its first output; else 0

  int replicas() const { return static_cast<int>(gpus.size()); }
  DeviceId device(int microbatch) const { return gpus[static_cast<std::size_t>(microbatch % replicas())]; }
  bool is_cost() const { return role == LayerRole::cost; }
};

/// A net. Nodes are in topological order (that of the file).
///
/// A minibatch is cut into `microbatches`, as many as the layer with most replicas has. Replica r of a layer
/// with K replicas works on microbatches r, r + K, ..., one a run.
struct Graph {
  Table<NodeId, Node> nodes;
  int microbatches = 1;
  int passes = 1;                     ///< passes of a minibatch: most replicas / fewest replicas
  std::vector<std::string> rewrites;  ///< one line each, for `convnet plan --verbose`
  bool in_place = true;               ///< layers may write over inputs that nobody else reads

  /// Returns the node of that name, or null.
  const Node* find(std::string_view name) const;
  /// Returns the different numbers of replicas, in ascending order.
  std::vector<int> replica_counts() const;
  int gpu_count() const;  ///< 1 + the largest index in any gpu= line
  /// Number of images in one microbatch of a minibatch: the last ones may have fewer, or none. Views of an
  /// image stay together.
  std::int64_t images_of(std::int64_t images, int microbatch, std::int64_t views = 1) const;
  const WeightSpec& weight(const WeightOwner& w) const { return nodes[w.node].layer->weights[w.index]; }
  /// Whether matrix `i` of `node` adds to a gradient: neither it nor its owner is frozen.
  bool learns(const Node& node, std::size_t i) const {
    return node.layer->weights[i].learned() && weight(node.owners[i]).learned();
  }
  /// Returns the nodes that add to the gradient of a matrix, in order; a node that uses it twice stands
  /// twice. Empty: the matrix gets no gradient. Needs Node::gets_gradient.
  std::vector<NodeId> gradient_sources(const WeightOwner& matrix) const;
};

/// The place of a layer: what its gpu= and parallel= lines say.
struct LayerPlace {
  std::vector<DeviceId> gpus;  ///< one per replica; of a divided layer, one per part
  bool divided = false;        ///< parallel=model, or an element-wise layer that is divided as its inputs are
  bool operator==(const LayerPlace&) const = default;
};

/// The place of every layer of a definition file, by its section's name.
using Placement = std::map<std::string, LayerPlace>;

struct GraphOptions {
  bool strict = false;  ///< unknown keys are errors
  bool rewrites =
      true;         ///< fuse layers and work in place; off only to look for the cause of a NaN, and in tests
  int devices = 0;  ///< in --gpu; 0: any number
  bool data_parallel = false;  ///< every layer on all devices, whatever the file says
  /// The place of every layer, whatever the file says; null: as in the file. Weights are then updated once a
  /// minibatch, or after as many minibatches as the file says. Must outlive the call.
  const Placement* placement = nullptr;

  /// Whether layers are elsewhere than the file says.
  bool moved() const { return data_parallel || placement != nullptr; }
};

/// Builds the graph of two files. Everything wrong goes to `diagnostics`; the graph is complete only without
/// errors.
Graph build_graph(const IniFile& definition, const IniFile& parameters,
                  const std::vector<MatrixInfo>& matrices, const GraphOptions& options,
                  Diagnostics& diagnostics);

/// Returns where the layers of a file are by its own gpu= and parallel= lines. Everything wrong goes to
/// `diagnostics`.
Placement written_placement(const IniFile& definition, const IniFile& parameters,
                            const std::vector<MatrixInfo>& matrices, const GraphOptions& options,
                            Diagnostics& diagnostics);

/// Returns one line for each layer, with its keys in order, without those that only place it on devices or
/// set initial weights. Two definition files with equal lines are the same logical net.
std::vector<std::string> logical_signature(const IniFile& definition);

}  // namespace convnet
