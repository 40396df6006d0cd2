// The outputs of layers, read in the middle of a step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "convnet/net/net.h"

namespace convnet {

/// Returns the nodes that hold the output of `layer` as its users see it, after its neuron: one node, or the
/// parts of a divided layer. Throws InputError if there is no layer of that name, with the nearest name, or
/// if the layer has no features (costs, labels).
std::vector<NodeId> nodes_with_features(const Graph& graph, const std::string& layer);

/// Prepares a graph for reading the output of `layer`: undoes a rewrite by which that layer also applies the
/// relu of the layer above. Throws InputError as nodes_with_features() does.
void keep_output(Graph& graph, const std::string& layer);

/// Reads the outputs of layers while test steps run, wherever their replicas and parts are. The plan stays
/// the same: values are copied right after the task that makes them, before their memory is used again.
class OutputReader {
 public:
  /// `layers` are names of the definition file. Throws InputError as nodes_with_features() does. A layer that
  /// a relu above may be fused into needs keep_output() before the net is made. Keeps a reference to `net`.
  OutputReader(const Net& net, const std::vector<std::string>& layers);

  /// Returns the `after_task` for Executor::run() in the next run of `plan`, a plan for tests. It is valid
  /// until the next call.
  std::function<void(TaskId task)> reading(const Plan& plan);

  /// Returns the shape of the i-th layer's output for one image.
  const FeatureShape& shape(std::size_t i) const { return layers_[i].shape; }
  /// Collects what the other processes have read in the run. All processes call it together; a single process
  /// need not.
  void collect();
  /// Returns the output of the i-th layer in the run, (N,C,H,W) or (N,C), as its users see it, after its
  /// neuron. Views of an image are consecutive rows.
  const std::vector<float>& values(std::size_t i) const { return layers_[i].values; }

 private:
  struct Wanted {
    FeatureShape shape;
    std::vector<NodeId> nodes;  ///< the layer, or its parts
    std::vector<float> values;
  };
  /// A part of a layer's output, for some of the images: in `buffer` right after its task.
  struct Piece {
    std::size_t layer = 0;  ///< into layers_
    BufferId buffer;
    std::int64_t images = 0, first_image = 0;
    std::int64_t elements = 0, begin = 0;  ///< of an image
  };
  using Pieces = std::multimap<TaskId, Piece>;  ///< by task

  Pieces find_pieces(const Plan& plan) const;
  void read(const Plan& plan, const Piece& piece);

  const Net& net_;
  std::vector<Wanted> layers_;
  std::map<const Plan*, Pieces> known_;
};

/// Returns the mean over the views of each image: (images * views, features) to (images, features).
std::vector<float> mean_of_views(const std::vector<float>& values, std::int64_t features, std::int64_t views);

}  // namespace convnet
