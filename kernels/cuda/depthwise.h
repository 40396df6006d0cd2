// Depthwise convolutions, whose groups have one map each, by our own kernels. Libraries have few engines for
// them, and none for some.
#pragma once

#include "kernels/cuda/prepare.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {

// Prepare convolutions for which is_depthwise() is true.
Prepared prepare_depthwise(const ConvForward& op, const OpForm& form);
Prepared prepare_depthwise(const ConvBackwardData& op, const OpForm& form);
Prepared prepare_depthwise(const ConvBackwardWeights& op, const OpForm& form);

}  // namespace convnet::cuda
