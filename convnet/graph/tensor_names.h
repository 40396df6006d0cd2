// The names of a net's tensors in checkpoints.
#pragma once

#include <array>
#include <string>

#include "convnet/graph/graph.h"

namespace convnet {

/// Suffixes of the names of tensors that belong to a matrix in checkpoints: its increments, the gradients of
/// an update that is not yet due, the means of squared gradients of AdamW and of RMSProp, and the running
/// average.
inline constexpr const char *kIncrementSuffix = "Inc", *kGradientSuffix = "Grad", *kAdamSquaresSuffix = "Sqr",
                            *kRmsSquaresSuffix = "Msq", *kAverageSuffix = "Avg";
inline constexpr std::array kTrainingSuffixes = {kIncrementSuffix, kGradientSuffix, kAdamSquaresSuffix,
                                                 kRmsSquaresSuffix, kAverageSuffix};

/// Returns the name of a tensor that belongs to a weight tensor: "conv1.weightsInc.data" for
/// "conv1.weights.data".
std::string increment_name(const std::string& layer, const std::string& weight,
                           const char* suffix = kIncrementSuffix);

/// Reports two matrices whose tensors would have one name in checkpoints, and a layer with the name of a part
/// of a divided layer. Names of layers may have dots and slashes, so only the whole net tells.
void check_names(const Graph& graph, Diagnostics& diagnostics);

}  // namespace convnet
