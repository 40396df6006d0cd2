// Convolutions where there is no cuDNN.
#include "kernels/cuda/conv_library.h"

namespace convnet::cuda {

Prepared prepare_by_library(const ConvForward&, const OpForm&, const Context&, const Prepared&) {
  return nullptr;
}
Prepared prepare_by_library(const ConvBackwardData&, const OpForm&, const Context&, const Prepared&) {
  return nullptr;
}
Prepared prepare_by_library(const ConvBackwardWeights&, const OpForm&, const Context&, const Prepared&) {
  return nullptr;
}

}  // namespace convnet::cuda
