// The tensors of a net in checkpoints.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "convnet/checkpoint/safetensors.h"
#include "convnet/graph/graph.h"
#include "convnet/plan/plan_set.h"

namespace convnet {

/// Suffixes of the names of tensors that belong to a matrix in checkpoints: its increments, the gradients of
/// an update that is not yet due, AdamW's means of squared gradients, and the running average.
inline constexpr const char *kIncrementSuffix = "Inc", *kGradientSuffix = "Grad", *kSquaresSuffix = "Sqr",
                            *kAverageSuffix = "Avg";
inline constexpr std::array kTrainingSuffixes = {kIncrementSuffix, kGradientSuffix, kSquaresSuffix,
                                                 kAverageSuffix};

/// Returns the name of a tensor that belongs to a weight tensor: "conv1.weightsInc.data" for
/// "conv1.weights.data".
std::string increment_name(const std::string& layer, const std::string& weight,
                           const char* suffix = kIncrementSuffix);

/// Returns a matrix that a net needs from the tensors of the checkpoint `file`. Throws InputError naming
/// both if it is missing, has other dims, or holds numbers that are not finite.
const std::vector<float>& matrix_of(const TensorFile& tensors, const std::string& file,
                                    const std::string& name, const Dims& dims);

/// Throws InputError as Net::init_from() would for a net with these plans.
void check_initial_weights(const Graph& graph, const PlanSet& plans, const std::string& file_or_folder);

}  // namespace convnet
