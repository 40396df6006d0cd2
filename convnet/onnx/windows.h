// Converts the windows of convolutions and pooling to ONNX's attributes.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "convnet/onnx/builder.h"

namespace convnet {

/// The windows along one side of an image, over the pixels [first, end) with a border of padding around them.
struct OnnxWindows {
  std::int64_t side = 0, first = 0, end = 0;
  std::int64_t size = 0, stride = 1, outputs = 0;
  std::int64_t pad_before = 0, pad_after = 0;
};

/// Returns `outputs` windows of `size` pixels that begin at start, start + stride, ... of a side. They may
/// hang over the edges. Pixels behind the last window are cut off if ONNX would put another window there;
/// ONNX ignores a rest that is too small for one.
inline OnnxWindows onnx_windows(std::int64_t side, std::int64_t start, std::int64_t size, std::int64_t stride,
                                std::int64_t outputs) {
  OnnxWindows w{side, std::max<std::int64_t>(start, 0), side, size, stride, outputs};
  const std::int64_t end = start + stride * (outputs - 1) + size;
  if (side - end >= stride) w.end = end;
  w.pad_before = std::max<std::int64_t>(-start, 0);
  w.pad_after = std::max<std::int64_t>(end - side, 0);
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

/// Returns the attributes that Conv, MaxPool and AveragePool have in common.
inline std::vector<OnnxAttribute> window_attributes(const OnnxWindows& rows, const OnnxWindows& columns) {
  using Ints = std::vector<std::int64_t>;
  return {{"kernel_shape", Ints{rows.size, columns.size}},
          {"strides", Ints{rows.stride, columns.stride}},
          {"pads", Ints{rows.pad_before, columns.pad_before, rows.pad_after, columns.pad_after}}};
}

}  // namespace convnet
