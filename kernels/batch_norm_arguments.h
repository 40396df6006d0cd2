// Finds the arguments of operations of batch normalisation, for all backends.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/ops/norms.h"

namespace convnet {

/// The arguments of BatchNormBackwardWeights that are not the same for all of these operations. Those that an
/// operation does not have are null.
struct GradientSumsArguments {
  const float *scale = nullptr, *shift = nullptr;
  std::byte *addend = nullptr, *output = nullptr;
  float *diff_scale = nullptr, *diff_shift = nullptr;

  GradientSumsArguments(const BatchNormBackwardWeights& op, std::span<std::byte* const> args) {
    auto next = args.begin() + 4;
    const auto floats = [&] { return reinterpret_cast<float*>(*next++); };
    if (!op.neuron.is_ident()) {
      scale = floats();
      shift = floats();
    }
    if (op.sum) addend = *next++;
    if (op.mask) output = *next++;
    diff_scale = floats();
    diff_shift = floats();
  }
};

}  // namespace convnet
