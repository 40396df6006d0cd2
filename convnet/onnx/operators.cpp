#include "convnet/onnx/operators.h"

namespace convnet {
namespace {

template <class Op>
concept InOnnx = requires(OnnxBuilder& b, const Op& op, const OnnxArguments& args) {
  add_operators(b, op, args);
};

}  // namespace

std::string add_operation(OnnxBuilder& b, const OpDesc& op, const OnnxArguments& args) {
  return std::visit(
      [&]<class Op>(const Op& one) -> std::string {
        if constexpr (InOnnx<Op>)
          return add_operators(b, one, args);
        else
          throw std::logic_error("onnx: a test does not run " + one.name());
      },
      static_cast<const AnyOp&>(op));
}

}  // namespace convnet
