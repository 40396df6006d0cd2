// Chooses what computes a convolution: a library, our own kernels for depthwise ones, or matrix products,
// which can do all of them.
#include "kernels/cuda/chunked.h"
#include "kernels/cuda/conv_library.h"
#include "kernels/cuda/depthwise.h"

namespace convnet::cuda {
namespace {

/// `images` is the place of the input, or of its gradient, among the arguments.
template <class Op>
Prepared prepare_convolution(const Op& op, const OpForm& form, const Context& context, std::size_t images) {
  const ConvGeometry& g = op.g;
  const bool empty = g.n * g.oh * g.ow == 0;
  Prepared own = !empty && is_depthwise(g, form.args.at(images)) ? prepare_depthwise(op, form) : nullptr;
  Prepared by_library = empty ? nullptr : prepare_by_library(op, form, context, own);
  if (by_library) return by_library;
  return own ? own : prepare_in_chunks(op, form, context, kMostColumnBytes);
}

}  // namespace

template <>
Prepared prepare(const ConvForward& op, const OpForm& form, const Context& context) {
  return prepare_convolution(op, form, context, 0);
}
template <>
Prepared prepare(const ConvBackwardData& op, const OpForm& form, const Context& context) {
  return prepare_convolution(op, form, context, 2);
}
template <>
Prepared prepare(const ConvBackwardWeights& op, const OpForm& form, const Context& context) {
  return prepare_convolution(op, form, context, 0);
}

}  // namespace convnet::cuda
