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
  /// The same matrix as the layer's forward operation reads it, if that is bf16. It is then kept so, too,
  /// because every step would round it otherwise; but in a net that learns only if the layouts are the same,
  /// because an update changes a range of both.
  std::optional<TensorDesc> rounded = {};
};

/// Returns the layout of each matrix of `node`: the one in which the layer's forward operation reads it for a
/// microbatch of `images` images. If that operation reads another type, a training step converts the weights
/// anyway, and they get the layout of their gradient. Matrices that forward does not read are plain.
/// `training` says whether the net learns.
std::vector<WeightLayout> choose_weight_layouts(const Node& node, std::int64_t images, bool training,
                                                const Target& target);

}  // namespace convnet
