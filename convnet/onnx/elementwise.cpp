// Operations on each element by itself or with those of other inputs, and on vectors.
#include "convnet/onnx/operators.h"

namespace convnet {
namespace {

std::string hard_sigmoid(OnnxBuilder& b, const std::string& x) {
  return b.add("HardSigmoid", {x}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}});
}

}  // namespace

std::string add_operators(OnnxBuilder& b, const NeuronForward& op, const OnnxArguments& args) {
  const Neuron& f = op.f;
  const std::string& x = args[0];
  switch (f.kind) {
    case NeuronKind::ident: return x;
    case NeuronKind::relu:
    case NeuronKind::nrelu: return b.add("Relu", {x});
    case NeuronKind::logistic: return b.add("Sigmoid", {x});
    case NeuronKind::tanh: return b.scaled(b.add("Tanh", {b.scaled(x, f.b)}), f.a);
    case NeuronKind::abs: return b.add("Abs", {x});
    case NeuronKind::softrelu: return b.add("Softplus", {x});
    case NeuronKind::square: return b.add("Mul", {x, x});
    case NeuronKind::sqrt: return b.add("Sqrt", {x});
    case NeuronKind::log: return b.add("Log", {b.shifted(x, f.a)});
    case NeuronKind::brelu: return b.add("Clip", {x, b.number(0), b.number(f.a)});
    case NeuronKind::linear: return b.shifted(b.scaled(x, f.a), f.b);
    case NeuronKind::drelu: {
      const std::string bent = b.add("Tanh", {b.add("Div", {x, b.number(f.a)})});
      return b.add("Sub", {x, b.scaled(bent, f.a)});
    }
    case NeuronKind::abstanh: return b.scaled(b.add("Abs", {b.add("Tanh", {b.scaled(x, f.b)})}), f.a);
    case NeuronKind::leaky: return b.add("LeakyRelu", {x}, {{"alpha", f.a}});
    case NeuronKind::elu: return b.add("Elu", {x}, {{"alpha", f.a}});
    case NeuronKind::silu: return b.add("Mul", {x, b.add("Sigmoid", {x})});
    case NeuronKind::gelu: {
      const std::string erf = b.add("Erf", {b.scaled(x, 0.7071067812F)});
      return b.add("Mul", {x, b.scaled(b.shifted(erf, 1), 0.5F)});
    }
    case NeuronKind::mish: return b.add("Mul", {x, b.add("Tanh", {b.add("Softplus", {x})})});
    case NeuronKind::hsigmoid: return hard_sigmoid(b, x);
    case NeuronKind::hswish: return b.add("Mul", {x, hard_sigmoid(b, x)});
  }
  throw std::logic_error("onnx: unknown neuron");
}

std::string add_operators(OnnxBuilder& b, const Scale& op, const OnnxArguments& args) {
  return b.scaled(args[0], op.factor);
}

std::string add_operators(OnnxBuilder& b, const SoftmaxForward&, const OnnxArguments& args) {
  return b.add("Softmax", {args[0]}, {{"axis", std::int64_t{1}}});
}

std::string add_operators(OnnxBuilder& b, const EltwiseSum& op, const OnnxArguments& args) {
  std::vector<std::string> terms;
  for (std::size_t i = 0; i < op.coeffs.size(); ++i) terms.push_back(b.scaled(args[i], op.coeffs[i]));
  return terms.size() == 1 ? terms[0] : b.add(terms.size() == 2 ? "Add" : "Sum", terms);
}

std::string add_operators(OnnxBuilder& b, const EltwiseMax&, const OnnxArguments& args) {
  return b.add("Max", args);
}

std::string add_operators(OnnxBuilder& b, const EltwiseProduct& op, const OnnxArguments& args) {
  return b.add("Mul", {args[0], op.by_map ? b.reshaped(args[1], {op.dims.at(1), 1, 1}) : args[1]});
}

std::string add_operators(OnnxBuilder& b, const Concat& op, const OnnxArguments& args) {
  std::vector<std::string> inputs = args;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Dims& dims = op.from[i];
    if (op.to.size() == 2 && dims.size() > 2)
      inputs[i] = b.reshaped(inputs[i], {element_count({dims.begin() + 1, dims.end()})});
  }
  return b.add("Concat", inputs, {{"axis", std::int64_t{1}}});
}

std::string add_operators(OnnxBuilder& b, const TakeMaps& op, const OnnxArguments& args) {
  const MapOrder order = op.order();
  if (order.groups == 1)
    return b.sliced(args[0], {{.axis = 1, .first = order.first, .end = order.first + order.to}});
  // As PyTorch writes a channel shuffle.
  const Dims pixels(op.to.begin() + 2, op.to.end());
  Dims groups = {order.groups, order.to / order.groups}, maps = {order.to};
  for (Dims* dims : {&groups, &maps}) dims->insert(dims->end(), pixels.begin(), pixels.end());
  std::vector<std::int64_t> perm = {0, 2, 1};
  for (std::int64_t axis = 3; axis < 3 + std::ssize(pixels); ++axis) perm.push_back(axis);
  return b.reshaped(b.add("Transpose", {b.reshaped(args[0], groups)}, {{"perm", perm}}), maps);
}

}  // namespace convnet
