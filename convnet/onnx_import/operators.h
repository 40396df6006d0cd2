// Turns the operators of a model into layers, or where everything is known into constants. There is one
// function for each operator, in files by family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "convnet/onnx_import/activation.h"
#include "convnet/onnx_import/cannot_import.h"
#include "convnet/onnx_import/net_sketch.h"
#include "convnet/onnx_import/source_model.h"

namespace convnet {

/// The form that an import gives a tensor of the model. std::monostate stands for a tensor that could not be
/// made, because an operator below it was refused.
using SourceValue = std::variant<std::monostate, ConstantPtr, Activation>;

/// An operator with the values of its inputs. Its functions throw CannotImport if an input or attribute is
/// not of the kind that is asked for.
class OperatorCall {
 public:
  OperatorCall(const SourceNode& source, std::vector<SourceValue> values, std::int64_t opset_version,
               std::int64_t most, NetSketch& sketch)
      : node(source), opset(opset_version), most_numbers(most), net(sketch), inputs_(std::move(values)) {}

  const SourceNode& node;
  const std::int64_t opset;
  const std::int64_t most_numbers;  ///< the most that a constant may have that the operator computes
  NetSketch& net;

  std::size_t inputs() const { return inputs_.size(); }
  /// Returns whether input `i` is given.
  bool has(std::size_t i) const { return i < inputs_.size() && !node.inputs[i].empty(); }
  bool is_constant(std::size_t i) const { return has(i) && std::holds_alternative<ConstantPtr>(inputs_[i]); }
  bool all_constant() const;
  const Constant& constant(std::size_t i) const;
  const ConstantPtr& constant_pointer(std::size_t i) const;
  const Activation& activation(std::size_t i) const;
  /// Returns the input at any place if it is the only activation among constants.
  std::size_t only_activation() const;

  /// Return an attribute, or `otherwise` if it is not there.
  std::int64_t integer(const std::string& name, std::int64_t otherwise) const;
  double real(const std::string& name, double otherwise) const;
  std::string text(const std::string& name, const std::string& otherwise) const;
  std::vector<std::int64_t> integers(const std::string& name, std::vector<std::int64_t> otherwise = {}) const;
  bool has_attribute(const std::string& name) const { return node.attributes.contains(name); }
  /// Returns integers that older opsets have as an attribute and newer ones as the constant input `i`;
  /// nullopt if neither is there.
  std::optional<std::vector<std::int64_t>> integers_or_input(const std::string& name, std::size_t i) const;
  /// Returns the same for one number.
  std::optional<double> real_or_input(const std::string& name, std::size_t i) const;

  /// Returns an axis of `rank` axes, which may count from the end.
  static std::size_t axis(std::int64_t given, std::size_t rank);

 private:
  std::vector<SourceValue> inputs_;
};

/// Returns the values of an operator's outputs. Throws CannotImport if it cannot be layers.
std::vector<SourceValue> import_operator(OperatorCall& call);

/// Returns why an operator cannot be imported, whatever its inputs are; "" if that depends on them.
std::string why_never_imported(const SourceNode& node);

using OperatorFunction = std::vector<SourceValue> (*)(OperatorCall& call);
struct KnownOperator {
  const char* name;
  OperatorFunction import;
};
/// The operators of each family.
const std::vector<KnownOperator>& window_operators();      // windows.cpp: Conv, MaxPool, Pad, …
const std::vector<KnownOperator>& product_operators();     // products.cpp: Gemm, MatMul
const std::vector<KnownOperator>& norm_operators();        // norms.cpp: BatchNormalization, LRN
const std::vector<KnownOperator>& function_operators();    // functions.cpp: Relu, Clip, Gelu, …
const std::vector<KnownOperator>& arithmetic_operators();  // arithmetic.cpp: Add, Mul, Concat, Max, …
const std::vector<KnownOperator>& shape_operators();       // shapes.cpp: Reshape, Transpose, Slice, …

/// Returns whether a number of ONNX's TensorProto.DataType stands for floats: FLOAT, FLOAT16, DOUBLE or
/// BFLOAT16.
constexpr bool is_float_type(std::int64_t type) {
  return type == 1 || type == 10 || type == 11 || type == 16;
}

/// The number of BOOL among them.
constexpr std::int64_t kBoolType = 9;

/// Returns whether an operator of constants alone can be computed.
bool folds(const std::string& op);
/// Computes an operator of constants alone; nullopt if that is not known.
std::optional<std::vector<SourceValue>> fold_constants(OperatorCall& call);

/// Returns the dims that Reshape, Flatten, Squeeze or Unsqueeze makes of these.
Dims dims_after(const OperatorCall& call, const Dims& before);
/// Returns the result of Shape or Size for a tensor of these dims.
ConstantPtr shape_of(const OperatorCall& call, const Dims& dims);

/// Makes a constant of integers or of floats.
ConstantPtr make_constant(Dims dims, std::vector<std::int64_t> numbers);
ConstantPtr make_constant(Dims dims, std::vector<float> numbers);

/// Returns a constant of floats as a weight matrix with these dims, without a copy.
SketchMatrix as_matrix(const ConstantPtr& constant, Dims dims);

/// Returns the layer that holds an activation as maps (C,H,W) in order, which windows and normalisations
/// read; it may be a new one, with the maps in another order. `shape` gets the shape of the maps.
SketchId as_maps(OperatorCall& call, const Activation& a, FeatureShape& shape);

/// The numbers of a constant beside an activation that it is added to or multiplied with.
struct Broadcast {
  enum class Kind { number, maps, elements } kind = Kind::number;
  std::vector<float> numbers;  ///< one, one for each map, or one for each element as the layer stores them
};
/// Throws CannotImport if the constant is larger than the activation, or varies in a way that no layer has.
Broadcast broadcast(const Constant& constant, const Activation& a, const FeatureShape& shape);

}  // namespace convnet
