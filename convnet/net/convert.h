// --conv-to-local and --unshare-weights: convert a net to one with more weights that computes the same.
#pragma once

#include "convnet/checkpoint/safetensors.h"
#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "convnet/graph/graph.h"
#include "convnet/net/options.h"

namespace convnet {

/// Removes the entries that --unshare-weights lists ("layer" or "layer[i]") from weightSource, and turns the
/// conv layers that --conv-to-local lists into local ones, together with those that still share weights with
/// them. A layer that is converted already gets only a warning, because the same command line may resume the
/// run. Errors name the option.
void convert_definition(IniFile& definition, const NetFileOptions& options, Diagnostics& diagnostics);

/// Converts the weights and increments of the net `before`, and the windows of their updates, to those of the
/// converted net `after`: filters and biases are repeated at every position, shared matrices are copied. Both
/// nets compute the same.
void convert_tensors(TensorFile& tensors, UpdateWindows& windows, const Graph& before, const Graph& after);

}  // namespace convnet
