// Operators on maps that a model stacks along an axis of their own. Axes are counted without that of the
// images.
#pragma once

#include <optional>
#include <vector>

#include "convnet/onnx_import/operators.h"

namespace convnet {

/// Concatenates activations along an axis of size 1; nullopt if they are not whole layers of one size.
std::optional<Activation> stacked(OperatorCall& call, const std::vector<Activation>& all, std::size_t axis);

/// Adds the parts along an axis of the operator's input; nullopt if they are no ranges of a layer's maps.
std::optional<Activation> sum_of_parts(OperatorCall& call, std::size_t axis, bool keeps_axis);

/// Makes the softmax over the parts along an axis of the operator's input; nullopt if they are no ranges of a
/// layer's maps. Throws CannotImport if there are more than two.
std::optional<Activation> softmax_of_parts(OperatorCall& call, std::size_t axis);

}  // namespace convnet
