// Parts that the kernels of batch normalisation share.
#pragma once

#include <cmath>

#include "kernels/cuda/activations.h"

namespace convnet::cuda {

// GPUs have an instruction for it, wrong by 2 ulp.
#if defined(__CUDA_ARCH__)
__device__ inline float inverse_root(float x) { return rsqrtf(x); }
#else
inline float inverse_root(float x) { return 1 / std::sqrt(x); }
#endif

/// Returns the tensor args[index] of a fused operation if it is given, else null.
inline std::byte* argument_if(bool given, std::span<std::byte* const> args, std::size_t index) {
  return given ? args[index] : nullptr;
}

}  // namespace convnet::cuda
