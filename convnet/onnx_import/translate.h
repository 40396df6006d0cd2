// Turns the operators of a model into a sketch of a net.
#pragma once

#include <string>
#include <vector>

#include "convnet/onnx_import/net_sketch.h"
#include "convnet/onnx_import/source_model.h"

namespace convnet {

/// What an import makes of a model that leaves something open.
struct TranslateOptions {
  std::string output;  ///< the tensor with the answer; "": the model's first output
  Dims input_dims;     ///< dims of an image in the model; empty: as the file says
};

/// A model as layers.
struct TranslatedNet {
  NetSketch net;
  SketchId input = 0;   ///< the data layer
  SketchId output = 0;  ///< a vector
  std::string input_name, output_name;
  std::vector<std::string> other_outputs;  ///< outputs of the model that are left out
};

/// Translates what the output needs. Throws InputError naming each operator that cannot be layers, and why.
TranslatedNet translate(const SourceModel& model, const TranslateOptions& options);

/// Throws InputError with these problems, one for each line, the first ones if there are many.
[[noreturn]] void refuse(const std::string& file, const std::vector<std::string>& problems);

}  // namespace convnet
