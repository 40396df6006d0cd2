// Pooling over windows of pixels and over windows of maps.
#include "convnet/onnx/operators.h"
#include "convnet/onnx/windows.h"

namespace convnet {
namespace {

/// The windows of pooling, which are clipped to the image: a single one is what remains of it.
OnnxWindows pool_windows(const WindowLine& line) {
  if (line.windows > 1) return onnx_windows(line);
  const std::int64_t first = std::max<std::int64_t>(line.start, 0), end = std::min(line.pixels, line.end());
  return {line.pixels, first, end, end - first, 1, 1};
}

}  // namespace

std::string add_operators(OnnxBuilder& b, const PoolForward& op, const OnnxArguments& args) {
  const PoolGeometry& g = op.g;
  if (g.kind == PoolKind::max_abs) throw NotInOnnx("pool=maxabs");
  const OnnxWindows rows = pool_windows(g.rows()), columns = pool_windows(g.columns());
  const std::string kind = g.kind == PoolKind::max ? "MaxPool" : "AveragePool";
  if (rows.size == g.h && columns.size == g.w && rows.outputs == 1 && columns.outputs == 1)
    return b.scaled(b.add("Global" + kind, {args[0]}), g.sum ? static_cast<float>(g.h * g.w) : 1.0F);
  std::vector<OnnxAttribute> attributes = window_attributes(rows, columns);
  // A sum is the average of whole windows, with zeros beyond the edges.
  if (g.sum) attributes.push_back({"count_include_pad", std::int64_t{1}});
  const std::string pooled = b.add(kind, {seen_by(b, args[0], rows, columns)}, std::move(attributes));
  return b.scaled(pooled, g.sum ? static_cast<float>(rows.size * columns.size) : 1.0F);
}

std::string add_operators(OnnxBuilder& b, const CrossMapPoolForward& op, const OnnxArguments& args) {
  const CrossMapPool& p = op.p;
  const OnnxWindows maps = pool_windows({p.c, p.outputs, p.size, p.stride, p.start});
  const OnnxWindows pixels = pool_windows({p.h * p.w, p.h * p.w, 1});
  // The maps become the rows of an image.
  const std::string x = seen_by(b, b.reshaped(args[0], {1, p.c, p.h * p.w}), maps, pixels);
  return b.reshaped(b.add("MaxPool", {x}, window_attributes(maps, pixels)), {p.outputs, p.h, p.w});
}

}  // namespace convnet
