// The net of a checkpoint, for commands that use it without its data set and its files.
#pragma once

#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"
#include "convnet/show/run.h"
#include "providers/file_images.h"

namespace convnet {

struct TrainedNet {
  Checkpoint checkpoint;
  RunOptions options;  ///< each layer whole, on one device unless the command says otherwise
  LikeSet set;         ///< the data set that it was trained with
};

/// Reads a checkpoint, or a folder's newest one. The options in `given` replace the checkpoint's. Throws
/// InputError.
TrainedNet open_trained_net(const std::string& file, const OptionTexts& given);

/// Builds the net for a provider with these matrices. Throws InputError, naming layer and line, if they do
/// not fit it.
Graph graph_of(const TrainedNet& net, const std::vector<MatrixInfo>& matrices);

}  // namespace convnet
