// Functions of each element, and dropout.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "convnet/base/printable.h"
#include "convnet/onnx_import/operators.h"
#include "convnet/onnx_import/stacks.h"

namespace convnet {
namespace {

/// Adds a neuron on the input of an operator.
std::vector<SourceValue> with_neuron(OperatorCall& call, const SketchNeuron& f) {
  Activation a = call.activation(0);
  a.layer = call.net.add_neuron(a.layer, f);
  return {a};
}

/// The operators without attributes.
const std::map<std::string, SketchNeuron>& plain_functions() {
  static const std::map<std::string, SketchNeuron> all = {
      {"Relu", {"relu", 1, 0}},         {"Sigmoid", {"logistic", 1, 0}}, {"Tanh", {"tanh", 1, 1}},
      {"Softplus", {"softrelu", 1, 0}}, {"Abs", {"abs", 1, 0}},          {"Sqrt", {"sqrt", 1, 0}},
      {"Mish", {"mish", 1, 0}},         {"HardSwish", {"hswish", 1, 0}}, {"Log", {"log", 0, 0}},
      {"Neg", {"linear", -1, 0}},       {"Erf", {"erf", 1, 0}}};
  return all;
}

std::vector<SourceValue> import_plain(OperatorCall& call) {
  return with_neuron(call, plain_functions().at(call.node.op));
}

/// relu(-x).
SketchId below_zero(NetSketch& net, SketchId x) {
  return net.add_neuron(net.add_linear(x, -1, 0), {"relu", 1, 0});
}

/// x, and x times `slope` below 0. The neuron leaky has slopes above 0; else it is relu(x) - slope *
/// relu(-x).
std::vector<SourceValue> with_slope(OperatorCall& call, double slope) {
  Activation a = call.activation(0);
  NetSketch& net = call.net;
  if (slope > 0) {
    a.layer = net.add_neuron(a.layer, {"leaky", slope, 0});
    return {a};
  }
  const SketchId above = net.add_neuron(a.layer, {"relu", 1, 0});
  if (slope < 0) {
    a.layer = net.add_sum({above, below_zero(net, a.layer)}, {1, -slope});
  } else {
    a.layer = above;
  }
  return {a};
}

std::vector<SourceValue> import_leaky_relu(OperatorCall& call) {
  return with_slope(call, call.real("alpha", 0.01));
}

/// Returns the attribute alpha of Elu or Selu.
double elu_alpha(const OperatorCall& call, double otherwise) {
  const double alpha = call.real("alpha", otherwise);
  if (!(alpha > 0)) throw CannotImport(fmt::format("its alpha is {:g}; layers take one above 0", alpha));
  return alpha;
}

std::vector<SourceValue> import_elu(OperatorCall& call) {
  return with_neuron(call, {"elu", elu_alpha(call, 1), 0});
}

std::vector<SourceValue> import_selu(OperatorCall& call) {
  Activation a = call.activation(0);
  a.layer = call.net.add_neuron(a.layer, {"elu", elu_alpha(call, 1.67326319217681884765625), 0});
  a.layer = call.net.add_linear(a.layer, call.real("gamma", 1.05070102214813232421875), 0);
  return {a};
}

std::vector<SourceValue> import_gelu(OperatorCall& call) {
  if (const std::string form = call.text("approximate", "none"); form != "none")
    throw CannotImport("its approximate is " + excerpt(form) + ", which is another function than gelu");
  return with_neuron(call, {"gelu", 1, 0});
}

std::vector<SourceValue> import_swish(OperatorCall& call) {
  if (call.real("alpha", 1) != 1) throw CannotImport("its alpha is not 1");
  return with_neuron(call, {"silu", 1, 0});
}

/// Adds min(high, max(low, x)).
SketchId add_clip(NetSketch& net, SketchId x, double low, double high) {
  constexpr double kNone = std::numeric_limits<float>::max();
  const bool has_low = low > -kNone, has_high = high < kNone;
  if (has_low && has_high && low > high) throw CannotImport("its lower bound is above its upper one");
  if (has_low && has_high && low == high) throw CannotImport("its bounds are equal");
  if (has_low) {
    const SketchId above = net.add_linear(x, 1, -low);
    const SketchId bounded =
        has_high ? net.add_neuron(above, {"brelu", high - low, 0}) : net.add_neuron(above, {"relu", 1, 0});
    return net.add_linear(bounded, 1, low);
  }
  if (!has_high) return x;
  const SketchId below = net.add_neuron(net.add_linear(x, -1, high), {"relu", 1, 0});
  return net.add_linear(below, -1, high);
}

std::vector<SourceValue> import_clip(OperatorCall& call) {
  Activation a = call.activation(0);
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const double low = call.real_or_input("min", 1).value_or(-kNone);
  const double high = call.real_or_input("max", 2).value_or(kNone);
  if (std::isnan(low) || std::isnan(high)) throw CannotImport("its bounds are no numbers");
  a.layer = add_clip(call.net, a.layer, low, high);
  return {a};
}

/// max(0, min(1, alpha*x + beta)).
std::vector<SourceValue> import_hard_sigmoid(OperatorCall& call) {
  Activation a = call.activation(0);
  const SketchId line = call.net.add_linear(a.layer, call.real("alpha", 0.2), call.real("beta", 0.5));
  a.layer = call.net.add_neuron(line, {"brelu", 1, 0});
  return {a};
}

/// x, and x times a slope for each map below 0: relu(x) - slope * relu(-x).
std::vector<SourceValue> import_prelu(OperatorCall& call) {
  Activation a = call.activation(0);
  const FeatureShape shape = call.net.shape(a.layer);
  const Broadcast slope = broadcast(call.constant(1), a, shape);
  if (slope.kind == Broadcast::Kind::elements) throw CannotImport("it has a slope for each element");
  if (slope.kind == Broadcast::Kind::number) return with_slope(call, slope.numbers[0]);
  const SketchId above = call.net.add_neuron(a.layer, {"relu", 1, 0});
  const SketchId scaled = call.net.add_affine(below_zero(call.net, a.layer), slope.numbers,
                                              std::vector<float>(slope.numbers.size(), 0.0F));
  a.layer = call.net.add_sum({above, scaled}, {1, -1});
  return {a};
}

std::vector<SourceValue> import_dropout(OperatorCall& call) {
  Activation a = call.activation(0);
  const double ratio = call.real_or_input("ratio", 1).value_or(0.5);
  if (ratio < 0 || ratio >= 1) throw CannotImport(fmt::format("its ratio is {:g}", ratio));
  if (ratio == 0) return {a};
  SketchLayer layer{"dropout", {a.layer}, call.net.shape(a.layer), {}, {}, {}, {}};
  layer.parameters = {{"keep", fmt::format("{:.4g}", 1 - ratio)}};
  a.layer = call.net.add(std::move(layer));
  return {a};
}

/// Softmax and LogSoftmax over the numbers of a vector.
std::vector<SourceValue> import_softmax(OperatorCall& call) {
  const Activation& a = call.activation(0);
  const std::size_t rank = a.axes.size() + 1;
  constexpr std::int64_t kLastAxis = 13;  // the opset from which on the last axis is the default
  const std::size_t axis = OperatorCall::axis(call.integer("axis", call.opset >= kLastAxis ? -1 : 1), rank);
  const bool from_axis_on = call.opset < kLastAxis;
  bool vector = axis > 0 && a.in_order();
  for (std::size_t i = 1; i < rank; ++i)
    if (i != axis && !(from_axis_on && i > axis)) vector = vector && a.axes[i - 1].empty();
  if (!vector && !from_axis_on && axis > 0 && call.node.op == "Softmax") {
    if (std::optional<Activation> parts = softmax_of_parts(call, axis - 1)) return {*parts};
  }
  if (!vector) throw CannotImport("it is not over all numbers of an image, as that of a layer is");
  SketchLayer layer{"softmax", {a.layer}, {a.size(), 1, 1, false}, {}, {}, {}, {}};
  const FeatureShape shape = layer.shape;
  const SketchId softmax = call.net.add(std::move(layer));
  Activation result = reshaped(stored_activation(softmax, shape, a.images), a.dims());
  if (call.node.op == "LogSoftmax") result.layer = call.net.add_neuron(softmax, {"log", 0, 0});
  return {result};
}

}  // namespace

const std::vector<KnownOperator>& function_operators() {
  static const auto all = [] {
    std::vector<KnownOperator> operators = {{"LeakyRelu", import_leaky_relu},
                                            {"Elu", import_elu},
                                            {"Selu", import_selu},
                                            {"Gelu", import_gelu},
                                            {"Swish", import_swish},
                                            {"Clip", import_clip},
                                            {"HardSigmoid", import_hard_sigmoid},
                                            {"PRelu", import_prelu},
                                            {"Dropout", import_dropout},
                                            {"Softmax", import_softmax},
                                            {"LogSoftmax", import_softmax}};
    for (const auto& [op, neuron] : plain_functions()) operators.push_back({op.c_str(), import_plain});
    return operators;
  }();
  return all;
}

}  // namespace convnet
