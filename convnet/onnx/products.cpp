// Convolutions, inner products and locally-connected layers.
#include "convnet/onnx/operators.h"
#include "convnet/onnx/windows.h"

namespace convnet {
namespace {

using Ints = std::vector<std::int64_t>;

/// Adds what the output holds already, the last argument of the second and further inputs of a layer.
std::string accumulated(OnnxBuilder& b, const std::string& sum, bool accumulate, const OnnxArguments& args) {
  return accumulate ? b.add("Add", {args.back(), sum}) : sum;
}

/// All windows of an image as columns: (N,C,H,W) to (N, C*places, OH, OW). Each output map is a
/// convolution of one map with a filter that is 1 at one place.
std::string window_columns(OnnxBuilder& b, const LocalGeometry& g, const OnnxWindows& rows,
                           const OnnxWindows& columns, const std::string& x) {
  const std::int64_t places = g.filter.area();
  std::vector<float> filters(static_cast<std::size_t>(g.c * places * places), 0.0F);
  for (std::int64_t i = 0; i < g.c * places; ++i)
    filters[static_cast<std::size_t>(i * places + i % places)] = 1;
  std::vector<OnnxAttribute> attributes = window_attributes(rows, columns);
  attributes.push_back({"group", g.c});
  const std::string constant =
      b.numbers("places", {g.c * places, 1, g.filter.y, g.filter.x}, std::move(filters));
  return b.add("Conv", {seen_by(b, x, rows, columns), constant}, std::move(attributes));
}

}  // namespace

std::string add_operators(OnnxBuilder& b, const ConvForward& op, const OnnxArguments& args) {
  const ConvGeometry& g = op.g;
  const OnnxWindows rows = onnx_windows(g.rows()), columns = onnx_windows(g.columns());
  std::vector<OnnxAttribute> attributes = window_attributes(rows, columns);
  attributes.push_back({"group", g.groups});
  std::vector<std::string> inputs = {seen_by(b, args[0], rows, columns), args[1]};
  if (op.bias) inputs.push_back(args[2]);
  return accumulated(b, b.add("Conv", inputs, std::move(attributes)), op.accumulate, args);
}

std::string add_operators(OnnxBuilder& b, const InnerProductForward& op, const OnnxArguments& args) {
  const InnerProductGeometry& g = op.g;
  if (g.parts == 0) {
    std::vector<std::string> inputs = {args[0], args[1]};
    if (op.bias) inputs.push_back(args[2]);
    return accumulated(b, b.add("Gemm", inputs, {{"transB", std::int64_t{1}}}), op.accumulate, args);
  }
  // A product of a matrix with a vector for each part: (parts,O,I) times (N,parts,I,1).
  const std::string vectors = b.reshaped(args[0], {g.parts, g.in, 1});
  std::string product = b.reshaped(b.add("MatMul", {args[1], vectors}), {g.parts * g.out});
  if (op.bias) product = b.add("Add", {product, args[2]});
  return accumulated(b, product, op.accumulate, args);
}

std::string add_operators(OnnxBuilder& b, const LocalForward& op, const OnnxArguments& args) {
  const LocalGeometry& g = op.g;
  const std::int64_t positions = g.oh * g.ow, values = g.c / g.groups * g.filter.area();
  const std::string windows =
      window_columns(b, g, onnx_windows(g.rows()), onnx_windows(g.columns()), args[0]);
  // A product of a matrix with a vector for each position and group.
  const std::string by_position =
      b.add("Transpose", {b.reshaped(windows, {g.groups * values, positions})}, {{"perm", Ints{0, 2, 1}}});
  const std::string vectors = b.reshaped(by_position, {positions, g.groups, values, 1});
  const std::string weights =
      b.add("Reshape", {args[1], b.integers("shape", {positions, g.groups, g.k / g.groups, values})});
  std::string product = b.reshaped(b.add("MatMul", {weights, vectors}), {g.oh, g.ow, g.k});
  if (op.bias) product = b.add("Add", {product, args[2]});
  const std::string maps = b.add("Transpose", {product}, {{"perm", Ints{0, 3, 1, 2}}});
  return accumulated(b, maps, op.accumulate, args);
}

std::string add_operators(OnnxBuilder& b, const AddBias&, const OnnxArguments& args) {
  return b.add("Add", {args[1], args[0]});
}

}  // namespace convnet
