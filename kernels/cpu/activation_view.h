// The layouts of activations that own kernels walk, without oneDNN's headers.
#pragma once

#include <cstdint>
#include <optional>

#include "convnet/base/tensor.h"

namespace convnet::cpu {

/// Activations as own kernels walk them: [n][padded_c/block][spatial][block]; block 1 is plain (N,C,H,W) or
/// (N,C). Lanes of channels >= c hold zeros and must keep them.
struct ActivationView {
  std::int64_t n = 0, c = 0, spatial = 1;
  std::int64_t block = 1;     ///< channels stored together: 1, 4, 8 or 16
  std::int64_t padded_c = 0;  ///< c rounded up to whole blocks
  std::int64_t size() const { return n * padded_c * spatial; }
};
/// nullopt if the layout is neither plain nor nChw{4,8,16}c.
std::optional<ActivationView> activation_view(const TensorDesc& tensor);
/// (N,C,H,W) stored as nChw{block}c.
TensorDesc blocked_activations(const Dims& dims, int block, DataType type = DataType::f32);

}  // namespace convnet::cpu
