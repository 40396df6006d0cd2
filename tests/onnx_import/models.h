// Small models for the tests of imports, as bytes.
#pragma once

#include <string>
#include <vector>

#include "convnet/base/protobuf.h"
#include "convnet/onnx/model.h"
#include "convnet/onnx_import/source_model.h"
#include "tests/temp_folder.h"

namespace convnet {

/// Returns the file that write_onnx() writes.
inline std::string onnx_bytes(const OnnxModel& model) {
  const TempFolder folder;
  write_onnx(folder / "m.onnx", model);
  return read_file(folder / "m.onnx");
}

/// A model that reads `x`, images of dims `image`, and whose last node makes its output.
inline OnnxModel model_of(Dims image, std::vector<OnnxNode> nodes, std::vector<OnnxConstant> constants = {}) {
  OnnxModel model;
  model.inputs = {{"x", std::move(image)}};
  model.outputs = {{nodes.back().output, {1}}};
  model.nodes = std::move(nodes);
  model.constants = std::move(constants);
  return model;
}

/// A constant of these dims with the numbers 0.1, 0.2, ….
inline OnnxConstant counted(const std::string& name, const Dims& dims) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < element_count(dims); ++i) values.push_back(static_cast<float>(i + 1) / 10);
  return {name, dims, std::move(values)};
}

inline OnnxConstant integers(const std::string& name, std::vector<std::int64_t> values) {
  const Dims dims = {std::ssize(values)};
  return {name, dims, std::move(values)};
}

inline SourceModel parsed(const OnnxModel& model) { return parse_source_model("m.onnx", onnx_bytes(model)); }

}  // namespace convnet
