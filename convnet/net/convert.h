// --conv-to-local and --unshare-weights: from a net to one with more freedom, which starts where the other
// is.
#pragma once

#include "convnet/checkpoint/safetensors.h"
#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "convnet/graph/graph.h"
#include "convnet/net/options.h"

namespace convnet {

/// Takes what --unshare-weights lists ("layer" or "layer[i]") out of weightSource, and makes the conv layers
/// that --conv-to-local lists local, with those whose weights they still share. Layers that are so already
/// get a warning: a command line may be given again to resume its run. Errors name the option.
void convert_definition(IniFile& definition, const NetFileOptions& options, Diagnostics& diagnostics);

/// Weights and increments of `before` as the converted net `after` has them: filters and biases repeated at
/// every position, shared matrices copied. The net computes what it did.
void convert_tensors(TensorFile& tensors, const Graph& before, const Graph& after);

}  // namespace convnet
