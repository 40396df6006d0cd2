// The layouts of activations that our own kernels can walk, without oneDNN's headers.
#pragma once

#include <cstdint>
#include <optional>

#include "convnet/base/tensor.h"

namespace convnet::cpu {

/// The order of activations in memory: [n][padded_c/block][spatial][block]; block 1 is plain (N,C,H,W) or
/// (N,C). Channels >= c are padding: they hold zeros, and kernels must keep them zero.
struct ActivationView {
  std::int64_t n = 0, c = 0, spatial = 1;
  std::int64_t block = 1;     ///< channels stored together: 1, 4, 8 or 16
  std::int64_t padded_c = 0;  ///< c rounded up to whole blocks
  std::int64_t size() const { return n * padded_c * spatial; }
};
/// Returns the view of a tensor; nullopt if its layout is neither plain nor nChw{4,8,16}c.
std::optional<ActivationView> activation_view(const TensorDesc& tensor);
/// Returns a tensor (N,C,H,W) that is stored as nChw{block}c.
TensorDesc blocked_activations(const Dims& dims, int block, DataType type = DataType::f32);

}  // namespace convnet::cpu
