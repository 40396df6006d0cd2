// Response normalisation across and within maps, and batch normalisation.
#include <tuple>

#include "convnet/onnx/operators.h"
#include "convnet/onnx/windows.h"

namespace convnet {
namespace {

std::string squares(OnnxBuilder& b, const std::string& x) { return b.add("Mul", {x, x}); }

/// x * (min_div + scale * means)^-power; both norms have these fields. The means are those of whole windows,
/// with zeros beyond the edges.
template <class Norm>
std::string normalised(OnnxBuilder& b, const Norm& p, const std::string& x, const std::string& means) {
  const std::string denominators = b.shifted(b.scaled(means, p.scale), p.min_div);
  return b.add("Mul", {x, b.add("Pow", {denominators, b.number(-p.power)})});
}

std::string averages(OnnxBuilder& b, const std::string& x, const OnnxWindows& rows,
                     const OnnxWindows& columns, bool whole_windows) {
  std::vector<OnnxAttribute> attributes = window_attributes(rows, columns);
  attributes.push_back({"count_include_pad", std::int64_t{whole_windows ? 1 : 0}});
  return b.add("AveragePool", {x}, std::move(attributes));
}

}  // namespace

std::string add_operators(OnnxBuilder& b, const CrossMapNormForward& op, const OnnxArguments& args) {
  const CrossMapNorm& p = op.p;
  // Windows of an even size lie otherwise, and not every program takes numbers that are not above 0.
  if (!p.blocked && p.size % 2 == 1 && p.scale > 0 && p.power > 0)
    return b.add("LRN", {args[0]},
                 {{"size", p.size}, {"alpha", p.scale}, {"beta", p.power}, {"bias", p.min_div}});
  const std::int64_t pixels = p.h * p.w;
  const std::int64_t groups = (p.c + p.size - 1) / p.size;
  const OnnxWindows maps = p.blocked ? onnx_windows({p.c, groups, p.size, p.size})
                                     : onnx_windows({p.c, p.c, p.size, 1, -(p.size / 2)});
  // The maps become the rows of an image.
  std::string means = averages(b, b.reshaped(squares(b, args[0]), {1, p.c, pixels}), maps,
                               onnx_windows({pixels, pixels, 1}), true);
  if (p.blocked) {
    const std::string one_each = b.reshaped(means, {groups, 1, pixels});
    means = b.add("Expand", {one_each, b.integers("shape", {1, 1, p.size, 1})});
    means = b.reshaped(means, {groups * p.size, p.h, p.w});
    if (groups * p.size > p.c) means = b.sliced(means, {{1, 0, p.c}});
  } else {
    means = b.reshaped(means, {p.c, p.h, p.w});
  }
  return normalised(b, p, args[0], means);
}

std::string add_operators(OnnxBuilder& b, const WindowNormForward& op, const OnnxArguments& args) {
  const WindowNorm& p = op.p;
  const OnnxWindows rows = onnx_windows({p.h, p.h, p.size, 1, -(p.size / 2)});
  const OnnxWindows columns = onnx_windows({p.w, p.w, p.size, 1, -(p.size / 2)});
  std::string z = args[0];
  if (p.contrast) z = b.add("Sub", {z, averages(b, z, rows, columns, false)});
  return normalised(b, p, args[0], averages(b, squares(b, z), rows, columns, true));
}

std::string add_operators(OnnxBuilder& b, const BatchNormForward& op, const OnnxArguments& args) {
  const auto& [x, mean, variance, scale, shift] = std::tie(args[0], args[1], args[2], args[3], args[4]);
  return b.add("BatchNormalization", {x, scale, shift, mean, variance}, {{"epsilon", op.epsilon}});
}

}  // namespace convnet
