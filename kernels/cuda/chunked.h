// Convolutions and locally-connected layers by matrix products, for as many images or positions at a time as
// a limit of memory allows.
#pragma once

#include "kernels/cuda/prepare.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {

// Prepare operations whose windows take at most `most_bytes` at a time. prepare() passes kMostColumnBytes;
// tests pass less.
Prepared prepare_in_chunks(const ConvForward& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes);
Prepared prepare_in_chunks(const ConvBackwardData& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes);
Prepared prepare_in_chunks(const ConvBackwardWeights& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes);
Prepared prepare_in_chunks(const LocalForward& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes);
Prepared prepare_in_chunks(const LocalBackwardData& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes);
Prepared prepare_in_chunks(const LocalBackwardWeights& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes);

}  // namespace convnet::cuda
