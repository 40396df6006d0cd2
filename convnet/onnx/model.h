// The contents of an ONNX file (github.com/onnx/onnx): operators on named tensors, constants, inputs and
// outputs. The first dimension of every input and output is the number of images, which is free.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "convnet/base/tensor.h"

namespace convnet {

/// A tensor that the file holds: weights, or numbers that an operator needs.
struct OnnxConstant {
  std::string name;
  Dims dims;
  std::variant<std::vector<float>, std::vector<std::int64_t>> values;
};

struct OnnxAttribute {
  std::string name;
  std::variant<std::int64_t, float, std::vector<std::int64_t>> value;
};

/// An operator with its single output. The operator has the name of its output.
struct OnnxNode {
  std::string op;  ///< "Conv"
  std::vector<std::string> inputs;
  std::string output;
  std::vector<OnnxAttribute> attributes;
};

/// An input or output: (N, image...), float32.
struct OnnxTensor {
  std::string name;
  Dims image;
};

struct OnnxModel {
  static constexpr std::int64_t opset = 13, ir_version = 8;
  /// All files begin so (OutputOption::begins): with ir_version and producer_name, so that no model of
  /// another program is replaced.
  static constexpr const char* begins =
      "\x08\x08\x12\x07"
      "convnet";

  std::string name;
  std::vector<OnnxNode> nodes;  ///< in an order in which they can run
  std::vector<OnnxConstant> constants;
  std::vector<OnnxTensor> inputs, outputs;
  std::vector<std::pair<std::string, std::string>> metadata;  ///< keys and texts, each key once
};

/// The most bytes that a file may have, because readers of protocol buffers accept no more.
inline constexpr std::uint64_t kMostOnnxBytes = 0x7FFFFFFF;

/// Writes the file with an OutputFile. Throws InputError if it would be longer than `most_bytes`, and
/// RunError if it cannot be written.
void write_onnx(const std::string& path, const OnnxModel& model, std::uint64_t most_bytes = kMostOnnxBytes);

}  // namespace convnet
