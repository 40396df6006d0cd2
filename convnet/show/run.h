// A checkpoint with everything that `convnet show` needs to draw.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"
#include "convnet/net/net_files.h"
#include "convnet/net/options.h"

namespace convnet {

/// The options of a run that its pictures depend on.
struct RunOptions {
  NetFileOptions files;
  DataOptions data;
  StepOptions step;
  DeviceOptions devices;
};
const OptionTable<RunOptions>& run_options();

/// A checkpoint, and the net, options and data set that belong to it.
struct Run {
  Checkpoint checkpoint;
  RunOptions options;  ///< the checkpoint's, or the command line's where it gives others
  NetFiles files;      ///< as the checkpoint holds them
  std::vector<MatrixInfo> matrices;
  Graph graph;
  std::shared_ptr<const Provider> provider;  ///< null: the data set cannot be used
  std::string no_provider;                   ///< the reason why it cannot be used
};

/// Makes a run of a checkpoint, whose options must be sound, and opens its data set, if that is there.
/// `given` are the options of the command line. Throws InputError.
Run open_run(Checkpoint checkpoint, const OptionTexts& given);

/// A weight matrix of a layer in the checkpoint.
struct LayerWeights {
  std::string tensor;  ///< name in the checkpoint; for shared weights that of the owner's tensor
  const NamedTensor* values = nullptr;
};
/// Finds the weights of the layer's `input`-th input in the checkpoint. Throws InputError, listing those that
/// exist, if there are none.
LayerWeights weights_of(const Run& run, const std::string& layer, int input);

/// The magnitudes of a matrix and of its last update. A magnitude is a mean of absolute values.
struct Magnitude {
  std::string tensor;
  Dims dims;
  double weights = 0, updates = 0;
};
/// Returns the magnitudes of all matrices that learn, in order of the file.
std::vector<Magnitude> magnitudes(const Run& run);

/// Returns what `convnet plan` prints about the net. Throws InputError or DeviceError if the plan cannot be
/// made on this machine.
std::string plan_of(const Run& run);

}  // namespace convnet
