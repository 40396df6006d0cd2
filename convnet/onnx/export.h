// Makes an ONNX model of a trained net.
#pragma once

#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"
#include "convnet/onnx/model.h"

namespace convnet {

/// Makes a model of what a net computes in tests. Its input "images" holds pixels as the data set has them;
/// if that is the name of an output, the input is called "images.1". Its outputs are the layers `outputs`,
/// named as for OutputReader. Weights are those of the checkpoint, or their running averages if it has them;
/// `statistics` holds the checkpoint's mean image and deviations. No layer of the graph may be divided.
/// Throws InputError naming each layer that ONNX has no operators for, a layer that does not exist, or a
/// tensor that is missing.
OnnxModel onnx_model(const Graph& graph, const Checkpoint& checkpoint, const PixelStatistics& statistics,
                     const std::vector<std::string>& outputs);

}  // namespace convnet
