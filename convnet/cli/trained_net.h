// The net of a checkpoint, for commands that use it without its data set and its files.
#pragma once

#include <string>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"
#include "convnet/show/run.h"
#include "providers/files.h"

namespace convnet {

struct TrainedNet {
  Checkpoint checkpoint;
  RunOptions options;
  Graph graph;
  LikeSet set;  ///< the data set that it was trained with
};

/// Reads a checkpoint and builds its net, each layer whole, on one device unless `given` says otherwise.
/// `given` are options that replace the checkpoint's. Throws InputError.
TrainedNet open_trained_net(const std::string& file, const OptionTexts& given);

}  // namespace convnet
