// Convolutions by a library: cuDNN (conv_cudnn.cpp), or none (no_cudnn.cpp).
#pragma once

#include "kernels/cuda/prepare.h"

namespace convnet::cuda {

// Prepare a convolution that has elements. `own`, which may be null, is the same by our own kernels. Return
// null if that is to be taken, because it was faster, or if the library has no engine for the convolution.
Prepared prepare_by_library(const ConvForward& op, const OpForm& form, const Context& context,
                            const Prepared& own);
Prepared prepare_by_library(const ConvBackwardData& op, const OpForm& form, const Context& context,
                            const Prepared& own);
Prepared prepare_by_library(const ConvBackwardWeights& op, const OpForm& form, const Context& context,
                            const Prepared& own);

}  // namespace convnet::cuda
