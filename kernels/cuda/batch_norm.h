// Parts that the kernels of batch normalisation share.
#pragma once

#include <cmath>

#include "kernels/cuda/activations.h"
#include "kernels/functors.h"

namespace convnet::cuda {

// GPUs have an instruction for it, wrong by 2 ulp.
#if defined(__CUDA_ARCH__)
__device__ inline float inverse_root(float x) { return rsqrtf(x); }
#else
inline float inverse_root(float x) { return 1 / std::sqrt(x); }
#endif

/// Returns the neuron's value; the neuron is_quick(), or ident.
CONVNET_DEVICE inline float apply(const Neuron& neuron, float x) {
  visit_quick_neuron(neuron, [&](auto functor) { x = functor.forward(x); });
  return x;
}
/// Returns dy times the slope of such a neuron at x.
CONVNET_DEVICE inline float differentiate(const Neuron& neuron, float x, float dy) {
  visit_quick_neuron(neuron, [&](auto functor) { dy = functor.backward(x, dy); });
  return dy;
}

/// Returns the tensor args[index] of a fused operation if it is given, else null.
inline std::byte* argument_if(bool given, std::span<std::byte* const> args, std::size_t index) {
  return given ? args[index] : nullptr;
}

}  // namespace convnet::cuda
