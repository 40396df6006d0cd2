// Makes a model for ONNX of a trained net.
#pragma once

#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"
#include "convnet/onnx/model.h"

namespace convnet {

/// Makes a model of what a net computes in tests: from "images", the pixels as the data set has them, to the
/// outputs of layers. `outputs` are names as OutputReader takes them, and those of the model's outputs.
/// Weights come from the checkpoint, their running averages where it has them; so do the mean image and the
/// deviations, which `statistics` holds. The graph must have all layers undivided. Throws InputError naming
/// each layer that ONNX has no operators for, a layer that is not there, or a tensor that is missing.
OnnxModel onnx_model(const Graph& graph, const Checkpoint& checkpoint, const PixelStatistics& statistics,
                     const std::vector<std::string>& outputs);

}  // namespace convnet
