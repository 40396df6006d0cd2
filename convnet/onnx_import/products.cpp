// Products with matrices of weights: fully-connected layers, and convolutions of single pixels.
#include <fmt/format.h>

#include "convnet/onnx_import/operators.h"

namespace convnet {
namespace {

/// A matrix of weights with an output in each row.
struct Matrix {
  std::int64_t outputs = 0, inputs = 0;
  std::vector<float> values;
};

/// Returns a constant as a matrix, each number times `factor`. `outputs_first`: it has a row for each output;
/// else a column.
Matrix matrix_of(const Constant& constant, bool outputs_first, double factor) {
  if (constant.dims.size() != 2 || !constant.is_float())
    throw CannotImport(fmt::format("its weights are {}, no matrix", to_string(constant.dims)));
  const std::vector<float>& from = constant.floats();
  Matrix m{constant.dims[outputs_first ? 0 : 1], constant.dims[outputs_first ? 1 : 0], from};
  if (!outputs_first) {
    for (std::int64_t o = 0; o < m.outputs; ++o)
      for (std::int64_t i = 0; i < m.inputs; ++i)
        m.values[static_cast<std::size_t>(o * m.inputs + i)] =
            from[static_cast<std::size_t>(i * m.outputs + o)];
  }
  if (factor != 1)
    for (float& value : m.values) value = static_cast<float>(value * factor);
  return m;
}

using Biases = std::optional<std::vector<float>>;

/// Adds a fully-connected layer on a vector.
SourceValue add_fc(OperatorCall& call, const Activation& a, Matrix m, Biases biases) {
  if (a.size() != m.inputs || m.outputs < 1)
    throw CannotImport(fmt::format("its weights take {} numbers, but its input has {}", m.inputs, a.size()));
  if (!a.in_order()) {  // the columns get the order in which the layer below stores its elements
    const std::vector<float> before = m.values;
    const std::vector<std::int64_t> at = places(a.axes);
    for (std::int64_t o = 0; o < m.outputs; ++o)
      for (std::int64_t i = 0; i < m.inputs; ++i)
        m.values[static_cast<std::size_t>(o * m.inputs + at[static_cast<std::size_t>(i)])] =
            before[static_cast<std::size_t>(o * m.inputs + i)];
  }
  SketchLayer layer{"fc", {a.layer}, {m.outputs, 1, 1, false}, {}, {}, {}, {}};
  layer.keys = {{"outputs", std::to_string(m.outputs)}};
  layer.matrices["weights"] = make_matrix({m.outputs, m.inputs}, std::move(m.values));
  if (biases) layer.matrices["biases"] = make_matrix({m.outputs}, *std::move(biases));
  const FeatureShape shape = layer.shape;
  return stored_activation(call.net.add(std::move(layer)), shape, a.images);
}

/// Adds a convolution of single pixels for a product along the axis of the maps, which is the last one.
SourceValue add_pixel_conv(OperatorCall& call, const Activation& a, Matrix m) {
  const FeatureShape in = call.net.shape(a.layer);
  const AxisDigits all{{in.c, in.h * in.w}};
  if (!in.image || a.axes.back() != joined(all) || in.c != m.inputs)
    throw CannotImport("it multiplies an axis that is not that of the maps");
  SketchLayer layer{"conv", {a.layer}, {m.outputs, in.h, in.w, true}, {}, {}, {}, {}};
  layer.keys = {
      {"channels", std::to_string(in.c)}, {"filters", std::to_string(m.outputs)}, {"filterSize", "1"}};
  layer.matrices["weights"] = make_matrix({m.outputs, in.c, 1, 1}, std::move(m.values));
  Activation result = a;
  result.layer = call.net.add(std::move(layer));
  result.axes.back() = joined(AxisDigits{{m.outputs, in.h * in.w}});
  return result;
}

std::vector<SourceValue> import_gemm(OperatorCall& call) {
  const Activation& a = call.activation(0);
  if (call.integer("transA", 0) != 0) throw CannotImport("it transposes its input");
  if (a.axes.size() != 1) throw CannotImport("its input is no vector, but " + to_string(a.dims()));
  Matrix m = matrix_of(call.constant(1), call.integer("transB", 0) != 0, call.real("alpha", 1));
  Biases biases;
  if (call.has(2)) {
    const Constant& c = call.constant(2);
    if (!c.is_float() || (c.count() != 1 && c.count() != m.outputs))
      throw CannotImport(fmt::format("its biases are {}", to_string(c.dims)));
    const auto beta = static_cast<float>(call.real("beta", 1));
    biases.emplace();
    for (std::int64_t o = 0; o < m.outputs; ++o)
      biases->push_back(beta * static_cast<float>(c.number(c.count() == 1 ? 0 : o)));
  }
  return {add_fc(call, a, std::move(m), std::move(biases))};
}

std::vector<SourceValue> import_matmul(OperatorCall& call) {
  if (call.is_constant(0)) throw CannotImport("its first factor is a constant");
  if (!call.is_constant(1)) throw CannotImport("it multiplies two tensors that are no constants");
  const Activation& a = call.activation(0);
  Matrix m = matrix_of(call.constant(1), false, 1);
  if (a.axes.size() == 1) return {add_fc(call, a, std::move(m), {})};
  if (a.axes.empty()) throw CannotImport("its input is no vector");
  return {add_pixel_conv(call, a, std::move(m))};
}

}  // namespace

const std::vector<KnownOperator>& product_operators() {
  static const std::vector<KnownOperator> all = {{"Gemm", import_gemm}, {"MatMul", import_matmul}};
  return all;
}

}  // namespace convnet
