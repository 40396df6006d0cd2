// The contents of an ONNX file of any program, as far as an import needs them.
//
//   const SourceModel model = read_source_model("resnet18.onnx");
//   for (const SourceNode& node : model.nodes) …   // in an order in which they can run
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "convnet/base/tensor.h"

namespace convnet {

/// A tensor whose numbers are known: of the file, or computed from such tensors. Floating-point numbers of
/// all sizes are float; integers and truth values are std::int64_t.
struct Constant {
  Dims dims;
  std::variant<std::vector<float>, std::vector<std::int64_t>> numbers;

  bool is_float() const { return numbers.index() == 0; }
  const std::vector<float>& floats() const { return std::get<0>(numbers); }
  const std::vector<std::int64_t>& integers() const { return std::get<1>(numbers); }
  std::int64_t count() const;
  /// Returns number `i`, whatever its type.
  double number(std::int64_t i) const;
};
using ConstantPtr = std::shared_ptr<const Constant>;

/// A tensor that the file holds. If its numbers cannot be read, `problem` says why: the import is refused
/// only if something needs it.
struct StoredTensor {
  ConstantPtr constant;
  std::string problem;
};

/// The value of an attribute; std::monostate stands for kinds that no supported operator has, like graphs.
using SourceAttribute = std::variant<std::monostate, std::int64_t, float, std::string, StoredTensor,
                                     std::vector<std::int64_t>, std::vector<float>>;

struct SourceNode {
  std::string op, domain, name;
  std::vector<std::string> inputs, outputs;  ///< names of tensors; "" for one that is left out
  std::map<std::string, SourceAttribute> attributes;
};

/// An input of the model. Sides that the file leaves open are 0.
struct SourceInput {
  std::string name;
  Dims dims;
};

struct SourceModel {
  std::string file;               ///< name for messages
  std::string producer;           ///< "pytorch 2.1.0"
  std::int64_t opset = 0;         ///< version of ONNX's own operators
  std::vector<SourceNode> nodes;  ///< in an order in which they can run
  std::map<std::string, StoredTensor> tensors;
  std::vector<SourceInput> inputs;  ///< without those that have a tensor, as older files list
  std::vector<std::string> outputs;
  std::map<std::string, std::string> metadata;
};

inline constexpr std::int64_t kOldestOpset = 7, kNewestOpset = 23;

/// Reads a file and checks it: its form, sizes of tensors against the bytes that are there, that each tensor
/// has one source, and that no tensor is computed from itself. Numbers may be in other files of the model's
/// folder. Throws InputError naming the file and what is wrong.
SourceModel read_source_model(const std::string& path);

/// Reads a model that is in memory; messages call it `name`. It has no folder, so tensors in other files
/// cannot be read.
SourceModel parse_source_model(const std::string& name, const std::string& bytes);

}  // namespace convnet
