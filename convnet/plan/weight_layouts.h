// How the weights of a net lie in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "convnet/graph/graph.h"
#include "kernels/target.h"

namespace convnet {

/// Returns a layout for each matrix of `node`, of type f32: the one in which the layer's forward operation
/// reads it for a microbatch of `images` images. Where that operation reads another type, a training step
/// copies the weights anyway; they then lie as their gradient does. Matrices that forward does not read are
/// plain. `training`: whether the net learns.
std::vector<TensorDesc> choose_weight_layouts(const Node& node, std::int64_t images, bool training,
                                              const Target& target);

}  // namespace convnet
