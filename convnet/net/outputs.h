// The outputs of layers, read in the middle of a step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "convnet/net/net.h"

namespace convnet {

/// Returns the nodes that hold the output of `layer` as its users see it, after its neuron: one, or the parts
/// of a divided layer. Throws InputError where there is no layer of that name, with the nearest, or where it
/// has no features (costs, labels).
std::vector<NodeId> nodes_with_features(const Graph& graph, const std::string& layer);

/// Prepares a graph for reading the output of `layer`: where a rewrite lets it apply the relu of the layer
/// above too, it does not any more. Throws InputError as OutputReader does.
void keep_output(Graph& graph, const std::string& layer);

/// Reads layers' outputs while test steps run, wherever their replicas and parts are. Nothing is kept longer
/// or made otherwise for it: a value is copied right after the task that makes it.
class OutputReader {
 public:
  /// `layers`: names of the definition file. Throws InputError as nodes_with_features() does. A layer that
  /// the layer above may be fused into needs keep_output() before the net is made; softmax layers do not.
  /// Keeps a reference to `net`.
  OutputReader(const Net& net, const std::vector<std::string>& layers);

  /// Returns what Executor::run shall do after each task in the next run of `plan`, a plan for tests. It is
  /// valid until the next call.
  std::function<void(TaskId task)> reading(const Plan& plan);

  /// Returns the shape of the i-th layer's output for one image.
  const FeatureShape& shape(std::size_t i) const { return layers_[i].shape; }
  /// Collects, after the run, what the other processes have read. All processes call it together; one alone
  /// need not.
  void collect();
  /// Returns, after the run, the output (images, features) of the i-th layer as its users see it, after its
  /// neuron; features are (C,H,W). All views of an image follow one another.
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
    std::int64_t elements = 0, first_element = 0;  ///< of an image
  };
  using Pieces = std::multimap<TaskId, Piece>;  ///< by task

  Pieces find_pieces(const Plan& plan) const;
  void read(const Plan& plan, const Piece& piece);

  const Net& net_;
  std::vector<Wanted> layers_;
  std::map<const Plan*, Pieces> known_;
};

/// The mean over each image's views: (images * views, features) to (images, features).
std::vector<float> mean_of_views(const std::vector<float>& values, std::int64_t features, std::int64_t views);

}  // namespace convnet
