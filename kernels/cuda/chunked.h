// Convolutions and locally-connected layers by matrix products, for as many images or positions at a time as
// a limit of memory allows.
#pragma once

#include "kernels/cuda/prepare.h"

namespace convnet::cuda {

constexpr std::int64_t kMostColumnBytes = std::int64_t{256} << 20;

// Prepares an operation that copies at most `most_bytes` of its windows at a time: kMostColumnBytes in
// prepare(), less in tests.
Prepared prepare_in_chunks(const ConvForward& op, const LayoutHints& hints, const Context& context,
                           std::int64_t most_bytes);
Prepared prepare_in_chunks(const ConvBackwardData& op, const LayoutHints& hints, const Context& context,
                           std::int64_t most_bytes);
Prepared prepare_in_chunks(const ConvBackwardWeights& op, const LayoutHints& hints, const Context& context,
                           std::int64_t most_bytes);
Prepared prepare_in_chunks(const LocalForward& op, const LayoutHints& hints, const Context& context,
                           std::int64_t most_bytes);
Prepared prepare_in_chunks(const LocalBackwardData& op, const LayoutHints& hints, const Context& context,
                           std::int64_t most_bytes);
Prepared prepare_in_chunks(const LocalBackwardWeights& op, const LayoutHints& hints, const Context& context,
                           std::int64_t most_bytes);

}  // namespace convnet::cuda
