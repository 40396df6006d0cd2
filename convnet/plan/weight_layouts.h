// Chooses the layouts of the weights of a net.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "convnet/graph/graph.h"
#include "kernels/target.h"

namespace convnet {

/// The form in which a matrix is kept.
struct WeightLayout {
  TensorDesc weights;  ///< of type f32
  /// The form in which forward reads the matrix, if that is bf16: a copy is kept in it, so that steps need
  /// not round the matrix. Nets that learn keep one only if it has the layout of `weights`, because an update
  /// writes the same range of both.
  std::optional<TensorDesc> rounded = {};
};

/// Returns the layout of each matrix of `node`: the one in which the layer's product (Layer::products())
/// reads it for a microbatch of `images` images. If the product reads another type, a training step converts
/// the weights anyway, and they get the layout of their gradient. Matrices of no product are plain.
/// `training` says whether the net learns.
std::vector<WeightLayout> choose_weight_layouts(const Node& node, std::int64_t images, bool training,
                                                const Target& target);

}  // namespace convnet
