// Converts the windows of convolutions and pooling to ONNX's attributes.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "convnet/onnx/builder.h"
#include "kernels/ops/windows.h"

namespace convnet {

/// The windows along one direction of an image, over the pixels [first, end) with a border of padding around
/// them.
struct OnnxWindows {
  std::int64_t side = 0, first = 0, end = 0;
  std::int64_t size = 0, stride = 1, outputs = 0;
  std::int64_t pad_before = 0, pad_after = 0;
  std::int64_t dilation = 1;
};

/// Returns the windows of a line. Pixels behind the last window are cut off if ONNX would put another window
/// there; ONNX ignores a rest that is too small for one.
inline OnnxWindows onnx_windows(const WindowLine& line) {
  OnnxWindows w{line.pixels, std::max<std::int64_t>(line.start, 0), line.pixels, line.size, line.stride,
                line.windows};
  const std::int64_t end = line.end();
  if (line.pixels - end >= line.stride) w.end = end;
  w.pad_before = std::max<std::int64_t>(-line.start, 0);
  w.pad_after = std::max<std::int64_t>(end - line.pixels, 0);
  w.dilation = line.dilation;
  return w;
}

/// Adds an operator that cuts off the pixels of images (N,C,H,W) that no window sees. Returns the name of the
/// result.
inline std::string seen_by(OnnxBuilder& b, const std::string& x, const OnnxWindows& rows,
                           const OnnxWindows& columns) {
  const auto all = [](const OnnxWindows& w) { return w.first == 0 && w.end == w.side; };
  if (all(rows) && all(columns)) return x;
  return b.sliced(x, {{2, rows.first, rows.end}, {3, columns.first, columns.end}});
}

/// Returns the attributes that Conv, MaxPool and AveragePool have in common. AveragePool has dilations since
/// opset 19 only; its windows have none.
inline std::vector<OnnxAttribute> window_attributes(const OnnxWindows& rows, const OnnxWindows& columns) {
  using Ints = std::vector<std::int64_t>;
  std::vector<OnnxAttribute> attributes = {
      {"kernel_shape", Ints{rows.size, columns.size}},
      {"strides", Ints{rows.stride, columns.stride}},
      {"pads", Ints{rows.pad_before, columns.pad_before, rows.pad_after, columns.pad_after}}};
  if (rows.dilation > 1 || columns.dilation > 1)
    attributes.push_back({"dilations", Ints{rows.dilation, columns.dilation}});
  return attributes;
}

}  // namespace convnet
