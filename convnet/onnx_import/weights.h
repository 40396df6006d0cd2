// Reads the weights of an ONNX model for a net that exists already.
#pragma once

#include <map>
#include <string>

#include "convnet/base/tensor.h"
#include "convnet/checkpoint/safetensors.h"
#include "convnet/onnx_import/net_sketch.h"
#include "convnet/onnx_import/source_model.h"

namespace convnet {

struct OnnxWeights {
  /// The file's tensors that have names of PyTorch's parameters ("conv1.weight"), or if this program has
  /// written the file, of checkpoints' matrices.
  TensorFile tensors;
  /// The matrices of the net that an import would make, by the names of their layers, then by their own
  /// without that of an input. They have the order that layers need, and names where the file's tensors have
  /// none. A file of this program's has none.
  std::map<std::string, std::map<std::string, SketchMatrix>> layers;
  /// The file has the parameters of batch norms.
  bool has_batch_norms = false;
  /// Why there are no `layers`: the model cannot be imported.
  std::string problem;
};

/// Returns the weights of a model. `image` holds the dims of the images of the net that takes them; models
/// that leave the size of their images open are read for these.
OnnxWeights onnx_weights(const SourceModel& model, const Dims& image);

}  // namespace convnet
