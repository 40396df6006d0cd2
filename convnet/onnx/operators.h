// Converts the operations of layers to operators of ONNX. There is one function for each kind of operation
// that a test runs; the functions are in files by family, as the operations in kernels/ops are.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "convnet/onnx/builder.h"
#include "kernels/ops.h"

namespace convnet {

/// ONNX has no operators that compute the same.
class NotInOnnx : public std::runtime_error {
 public:
  /// The message names what ONNX lacks: "pool=maxabs".
  using std::runtime_error::runtime_error;
};

/// The names of the tensors that an operation reads, in the order of its arguments. They have the arguments'
/// dims, except for the number of images, which is free in the model and 1 in the operation.
using OnnxArguments = std::vector<std::string>;

/// Adds the operators that compute an operation. Returns the name of its result. Throws NotInOnnx. The
/// overloads of add_operators() do this for one kind of operation each.
std::string add_operation(OnnxBuilder& b, const OpDesc& op, const OnnxArguments& args);

// products.cpp
std::string add_operators(OnnxBuilder& b, const ConvForward& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const InnerProductForward& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const LocalForward& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const AddBias& op, const OnnxArguments& args);
// pooling.cpp
std::string add_operators(OnnxBuilder& b, const PoolForward& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const CrossMapPoolForward& op, const OnnxArguments& args);
// norms.cpp
std::string add_operators(OnnxBuilder& b, const CrossMapNormForward& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const WindowNormForward& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const BatchNormForward& op, const OnnxArguments& args);
// elementwise.cpp
std::string add_operators(OnnxBuilder& b, const NeuronForward& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const Scale& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const SoftmaxForward& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const EltwiseSum& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const EltwiseMax& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const EltwiseProduct& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const Concat& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const TakeMaps& op, const OnnxArguments& args);
// images.cpp
std::string add_operators(OnnxBuilder& b, const LoadImages& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const SampleForward& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const Blur& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const Resize& op, const OnnxArguments& args);
std::string add_operators(OnnxBuilder& b, const ColorTransform& op, const OnnxArguments& args);

}  // namespace convnet
