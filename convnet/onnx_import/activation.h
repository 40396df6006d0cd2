// Tensors of an ONNX model that layers compute, as views of what the layers store.
//
// A layer stores maps (C,H,W) or a vector. The model may see these elements with other axes, because it
// transposes and reshapes them: Keras has the channels last, ShuffleNet cuts the channels into groups and
// exchanges the axes. An activation follows this without a layer of its own: each of its axes is a list of
// digits, and a digit counts elements that lie `stride` apart in the layer.
//
//   maps (N,6,4,4)                       axes {6:16} {4:4} {4:1}
//   transposed by (0,2,3,1)              axes {4:4} {4:1} {6:16}
//   … and reshaped to (N,96)             axes {4:4, 4:1, 6:16}
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "convnet/base/tensor.h"
#include "layers/layer.h"

namespace convnet {

/// The index of a layer in a NetSketch.
using SketchId = std::size_t;

struct Digit {
  std::int64_t size = 1, stride = 1;
  bool operator==(const Digit&) const = default;
};
/// The digits of an axis, the most significant first. They have no size of 1, and no two neighbours that
/// count on in one stride; an axis of size 1 has none.
using AxisDigits = std::vector<Digit>;

struct Activation {
  SketchId layer = 0;
  std::int64_t images = 1;       ///< size of the first axis
  std::vector<AxisDigits> axes;  ///< the others

  Dims dims() const;          ///< with the images first
  std::int64_t size() const;  ///< numbers of an image
  /// Returns whether the elements have the order in which the layer stores them.
  bool in_order() const;
};

/// Returns the size of an axis.
std::int64_t size_of(const AxisDigits& axis);
/// Returns the digits without sizes of 1, and joined where they count on.
AxisDigits joined(const AxisDigits& digits);
/// Returns the digits of all axes one after the other, joined.
AxisDigits joined(const std::vector<AxisDigits>& axes);

/// Returns the activation of a layer as it is stored.
Activation stored_activation(SketchId layer, const FeatureShape& shape, std::int64_t images);

/// Returns the activation with its axes in another order; perm[0] is 0.
Activation transposed(const Activation& a, const std::vector<std::int64_t>& perm);

/// Returns the activation with other dims of as many elements; dims[0] counts the images. Throws CannotImport
/// if an axis would mix elements that do not lie regularly.
Activation reshaped(const Activation& a, const Dims& dims);

/// Returns the place in the layer of every element that these axes count, in their order.
std::vector<std::int64_t> places(const std::vector<AxisDigits>& axes);

/// Returns the map that each element of an axis lies in, where an element is all `pixels` of a map. Throws
/// CannotImport if there are more than nets have, which a small file could ask for.
std::vector<std::int64_t> maps_along(const AxisDigits& axis, std::int64_t pixels);
/// Throws CannotImport if a list of so many maps is not made.
void check_maps(std::int64_t count);

/// Returns whether all elements that an axis counts are at one pixel, of different maps of this shape.
bool counts_maps(const AxisDigits& axis, const FeatureShape& shape);

}  // namespace convnet
