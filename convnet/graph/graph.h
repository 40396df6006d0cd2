// The layer graph: what a net computes and on which devices, checked, with all shapes known.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "convnet/base/ids.h"
#include "convnet/base/minibatch_cut.h"
#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "layers/layer.h"
#include "providers/provider.h"

namespace convnet {

/// Names a weight matrix: the one that owns the memory, which layers with shared weights use too.
struct WeightOwner {
  NodeId node{0};
  std::size_t index = 0;  ///< into Layer::weights
  bool operator==(const WeightOwner&) const = default;
};

/// Where a node comes from in the files of the net.
struct NodeOrigin {
  std::string
      layer_name;  ///< for a part of a layer (parallel=model) the name of the layer; else that of the node
  std::string section;       ///< section of the definition file
  SourceLocation where;      ///< the header of the section
  SourceLocation gpu_where;  ///< the gpu= line, or `where`
  bool placed = false;       ///< has a gpu= line
  bool implicit = false;     ///< has no section: made by a key of the layer below, or a gather
};

/// The facts about a node that the backward pass needs.
struct NodeGradient {
  bool weights_below = false;  ///< this node or one below it has weights
  bool learns_below = false;   ///< this node or one below it has weights that are trained
  bool gets_gradient = false;  ///< a cost with coeff != 0 lies above, and something at or below learns
  bool fused = false;          ///< a rewrite applies to this node; the facts of its layer say which
};

/// How a layer is divided over devices (parallel=model), and the place of a part in the whole layer.
struct NodeDivision {
  std::vector<DeviceId> gpus;  ///< the devices of all parts, replica by replica; expand_parts() empties it
  std::shared_ptr<const Layer>
      whole;               ///< the layer that the node is a part of; null: the node is a whole layer
  std::int64_t first = 0;  ///< index of the part's first output in `whole`
  bool gather = false;     ///< puts the parts of a layer together; made by expand_parts()
};

/// A layer of the graph, or a part of one that is divided over devices.
struct Node : NodeOrigin, NodeGradient {
  NodeId id{0};
  /// The name in the file; implicit layers are "<layer>_dropout" and "<layer>_neuron", with ".1" where the
  /// file has a layer of that name.
  std::string name;
  std::string type;
  LayerRole role = LayerRole::other;
  std::shared_ptr<const Layer> layer;
  std::vector<NodeId> inputs;  ///< all smaller than id
  std::vector<NodeId> users;   ///< in ascending order; a node that reads it twice is listed twice
  std::vector<DeviceId> gpus;  ///< one per replica; before expand_parts() those of first parts
  NodeDivision division;
  std::vector<WeightOwner> owners;  ///< by layer->weights: this node, or the one whose weights it shares
  std::vector<NodeId> children;     ///< the costs whose values are added to this cost's
  bool is_child = false;            ///< its values are added to another cost's and not printed separately
  int update_period = 1;            ///< passes for each update of its weights; may span several minibatches

  int replicas() const { return static_cast<int>(gpus.size()); }
  /// Returns the number of devices that each replica is divided over, until expand_parts() divides it.
  int parts() const {
    return division.gpus.empty() ? 1 : static_cast<int>(division.gpus.size() / gpus.size());
  }
  /// Returns whether it computes all outputs of its layer: it is neither a part of a divided layer, nor what
  /// gathers the parts.
  bool is_whole_layer() const { return !division.gather && !division.whole; }
  /// Returns "net.cfg:7: layer 'conv1'", the beginning of a message about the layer.
  std::string place_text() const;
  DeviceId device(int microbatch) const { return gpus[static_cast<std::size_t>(microbatch % replicas())]; }
  bool is_cost() const { return role == LayerRole::cost; }
};

/// A net. Nodes are in topological order (that of the file).
///
/// A minibatch is cut into `microbatches`: `per_replica` for each replica of the layer with most replicas.
/// Replica r of a layer with K replicas works on the microbatches r, r + K, ..., one in each run.
/// graph/schedule.h says in which order.
struct Graph {
  Table<NodeId, Node> nodes;
  int microbatches = 1;
  int per_replica = 1;                ///< --microbatches
  int passes = 1;                     ///< passes of a minibatch: most replicas / fewest replicas
  std::vector<std::string> rewrites;  ///< one line for each rewrite, for `convnet plan --verbose`
  bool in_place = true;               ///< layers may overwrite inputs that nobody else reads

  /// Returns the node of that name, or null.
  const Node* find(std::string_view name) const;
  /// Returns the different numbers of replicas, in ascending order.
  std::vector<int> replica_counts() const;
  /// Returns the number of devices: 1 + the largest index that any layer runs on.
  int gpu_count() const;
  MinibatchCut cut() const { return {microbatches / per_replica, passes, per_replica}; }
  /// Return the number of images in microbatch `microbatch` of a minibatch of `images`, and the index of the
  /// first of them. Views of an image stay together.
  std::int64_t images_of(std::int64_t images, int microbatch, std::int64_t views = 1) const {
    return cut().images_of(images / views, microbatch) * views;
  }
  std::int64_t first_image(std::int64_t images, int microbatch, std::int64_t views = 1) const {
    return cut().first_image(images / views, microbatch) * views;
  }
  const WeightSpec& weight(const WeightOwner& w) const { return nodes[w.node].layer->weights[w.index]; }
  /// Returns whether matrix `i` of `node` contributes to a gradient: neither it nor its owner is frozen.
  bool learns(const Node& node, std::size_t i) const {
    return node.layer->weights[i].learned() && weight(node.owners[i]).learned();
  }
  /// Returns the nodes that contribute to the gradient of a matrix, in order; a node that uses it twice is
  /// listed twice. Returns none if the matrix gets no gradient. Needs Node::gets_gradient.
  std::vector<NodeId> gradient_sources(const WeightOwner& matrix) const;
  /// Returns these nodes and all that they are computed from.
  std::set<NodeId> needed_for(const std::vector<NodeId>& wanted) const;
};

/// The place of a layer, as gpu=, parallel= and parts= lines describe it.
struct LayerPlace {
  std::vector<DeviceId> gpus;  ///< the devices of all parts, replica by replica
  /// Number of devices that each replica is divided over: by parallel=model, or as the inputs of an
  /// element-wise layer are; 1: the layer is not divided.
  int parts = 1;
  bool divided() const { return parts > 1; }
  /// Returns the device of each replica, of a divided layer that of its first part.
  std::vector<DeviceId> replicas() const;
  bool operator==(const LayerPlace&) const = default;
};

/// The place of every layer of a definition file, by its section's name.
using Placement = std::map<std::string, LayerPlace>;

/// How build_graph() makes a graph from a net's files.
struct GraphOptions {
  bool strict = false;  ///< unknown keys are errors
  /// Fuse layers and work in place. Off only in tests, and in the search for the cause of a NaN.
  bool rewrites = true;
  int devices = 0;             ///< number of devices in --gpu; 0: any number
  bool data_parallel = false;  ///< every layer on all devices, whatever the file says
  /// The place of every layer, whatever the file says; null: as in the file. With a placement, weights are
  /// updated once a minibatch, or after as many minibatches as the file says. Must outlive the call.
  const Placement* placement = nullptr;
  int processes = 1;     ///< number of processes that `devices` are of together
  int microbatches = 1;  ///< Graph::per_replica

  /// Returns whether these options place layers elsewhere than the file does.
  bool moved() const { return data_parallel || placement != nullptr; }
};

/// Builds the graph of two files. `matrices` describes the data. Errors and warnings go to `diagnostics`; the
/// graph is complete only if there are no errors.
Graph build_graph(const IniFile& definition, const IniFile& parameters,
                  const std::vector<MatrixInfo>& matrices, const GraphOptions& options,
                  Diagnostics& diagnostics);

/// Returns the placement that the gpu=, parallel= and parts= lines of a file describe. Errors go to
/// `diagnostics`.
Placement written_placement(const IniFile& definition, const IniFile& parameters,
                            const std::vector<MatrixInfo>& matrices, const GraphOptions& options,
                            Diagnostics& diagnostics);

/// Returns whether a key of a layer of this type says on which devices the layer runs.
bool places_layer(const LayerType& type, const std::string& key);

/// Returns one line for each layer, with its keys in order, except those that only place it on devices or set
/// initial weights. Two definition files with equal lines describe the same logical net.
std::vector<std::string> logical_signature(const IniFile& definition);

}  // namespace convnet
