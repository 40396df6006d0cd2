// The net that `convnet plan` and `convnet bench` work on: from two files, or from a checkpoint.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/net/net_files.h"
#include "convnet/net/predictor.h"

namespace convnet {

struct NamedNet {
  NetFiles files;
  std::shared_ptr<const Provider> provider;
  std::string checkpoint_placement;  ///< Checkpoint::placement
};

/// Reads the checkpoint that --load-file names, if it does, and adds to `texts` the checkpoint's options that
/// the command takes (`specs`) and the command line does not give. Else --layer-def, --layer-params and
/// --data-provider must be given. Throws InputError.
std::optional<Checkpoint> named_checkpoint(OptionTexts& texts, const std::vector<OptionSpec>& specs);

/// Opens the net. The net of a checkpoint needs neither the files nor the data set that it was trained with:
/// unless --data-provider is on the command line, random data of the same shapes replaces the data set.
NamedNet open_named_net(const std::optional<Checkpoint>& checkpoint, const OptionTexts& given,
                        const NetFileOptions& files, const DataOptions& data, const StepOptions& step,
                        Diagnostics& diagnostics);

/// Builds the graph of the net. With --parallel auto, layers run where they did in the checkpoint's run if
/// that was on the same devices; else a search with `predictor` places them, and `found` becomes a line about
/// the search.
Graph graph_of(const NamedNet& net, const NetFileOptions& files, const DeviceOptions& devices,
               const StepOptions& step, const std::function<Predictor&()>& predictor, std::string& found,
               Diagnostics& diagnostics);

}  // namespace convnet
