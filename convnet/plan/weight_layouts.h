// Chooses the layouts of the weights of a net.
#pragma once

#include <cstdint>
#include <vector>

#include "convnet/graph/graph.h"
#include "kernels/target.h"

namespace convnet {

/// Returns a layout for each matrix of `node`, of type f32: the one in which the layer's forward operation
/// reads it for a microbatch of `images` images. If that operation reads another type, a training step
/// converts the weights anyway, and they get the layout of their gradient. Matrices that forward does not
/// read are plain. `training` says whether the net learns.
std::vector<TensorDesc> choose_weight_layouts(const Node& node, std::int64_t images, bool training,
                                              const Target& target);

}  // namespace convnet
