// Inner products with oneDNN. Activations are plain (N,C); weights are (O,I) in the layout that oneDNN
// prefers. With blocked activations of four dimensions, the passes would want different layouts of the
// weights, and every step would reorder the largest tensors of the net.
#include <algorithm>
#include <optional>

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::onednn {
namespace {

using Desc = dnnl::memory::desc;

/// The descriptors of an inner product; the layout of the weights is left open.
struct Descs {
  Descs(const InnerProductGeometry& g, bool with_bias, DataType type)
      : src(to_dnnl(TensorDesc{g.src(), type, nullptr})),
        dst(to_dnnl(TensorDesc{g.dst(), type, nullptr})),
        weights(any_layout(g.weights(), type)) {
    if (with_bias) bias = to_dnnl(TensorDesc{{g.out}, DataType::f32, nullptr});
  }
  Desc src, dst, weights, bias;  ///< a bias without dimensions: there is none

  auto forward(const Desc& weights_desc, const dnnl::primitive_attr& attr) const {
    return forward_pd<dnnl::inner_product_forward>(attr, dnnl::prop_kind::forward_training, src, weights_desc,
                                                   bias, dst);
  }
};

/// Prepares make(weights desc). `weights` describes the weights or their gradient, of type `type`, with an
/// open layout; `weights_at` is the index of this argument.
template <class Primitive, class Make>
Prepared prepare_inner_product(const OpDesc& op, const Desc& weights, DataType type, const LayoutHints& hints,
                               std::size_t weights_at, std::vector<int> ids, const Make& make) {
  return checked(op, [&]() -> Prepared {
    std::optional<Desc> hinted;
    if (weights_at < hints.size() && hints[weights_at] && hints[weights_at]->type == type)
      hinted = to_dnnl(*hints[weights_at]);
    const auto pd = prefer_hinted(make, weights, hinted);
    return std::make_shared<DnnlOp>(op, pd, Primitive(pd), std::move(ids));
  });
}

void multiply_or_throw(const MatrixProduct& p) {
  if (!multiply(p))
    throw DeviceError("inner product: oneDNN's matrix product failed, perhaps for want of memory");
}

// Inner products in parts (layer type sfc) are a matrix product for each part, on plain tensors.

Prepared prepare_parts(const InnerProductForward& op) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const InnerProductGeometry& g = op.g;
    const std::int64_t in = g.src()[1], out = g.dst()[1];
    const float* src = as_floats(args[0]);
    const float* weights = as_floats(args[1]);
    float* dst = as_floats(args.back());
    for (std::int64_t p = 0; p < g.parts; ++p)
      multiply_or_throw({.trans_b = 'T',
                         .m = g.n,
                         .n = g.out,
                         .k = g.in,
                         .a = src + p * g.in,
                         .lda = in,
                         .b = weights + p * g.out * g.in,
                         .ldb = g.in,
                         .c = dst + p * g.out,
                         .ldc = out,
                         .accumulate = op.accumulate});
    const float* bias = op.bias ? as_floats(args[2]) : nullptr;
    for (std::int64_t n = 0; n < g.n; ++n) {
      for (std::int64_t o = 0; o < out; ++o) {
        float& y = dst[n * out + o];
        if (bias != nullptr) y += bias[o];
        if (op.relu) y = y < 0 ? 0 : y;
      }
    }
  });
}

Prepared prepare_parts(const InnerProductBackwardData& op) {
  return std::make_shared<KernelOp>(argument_tensors(op), [g = op.g](std::span<std::byte* const> args) {
    const std::int64_t in = g.src()[1], out = g.dst()[1];
    for (std::int64_t p = 0; p < g.parts; ++p)
      multiply_or_throw({.m = g.n,
                         .n = g.in,
                         .k = g.out,
                         .a = as_floats(args[0]) + p * g.out,
                         .lda = out,
                         .b = as_floats(args[1]) + p * g.out * g.in,
                         .ldb = g.in,
                         .c = as_floats(args[2]) + p * g.in,
                         .ldc = in});
  });
}

Prepared prepare_parts(const InnerProductBackwardWeights& op) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const InnerProductGeometry& g = op.g;
    const std::int64_t in = g.src()[1], out = g.dst()[1];
    const float* diff_dst = as_floats(args[1]);
    for (std::int64_t p = 0; p < g.parts; ++p)
      multiply_or_throw({.trans_a = 'T',
                         .m = g.out,
                         .n = g.in,
                         .k = g.n,
                         .a = diff_dst + p * g.out,
                         .lda = out,
                         .b = as_floats(args[0]) + p * g.in,
                         .ldb = in,
                         .c = as_floats(args[2]) + p * g.out * g.in,
                         .ldc = g.in});
    if (!op.bias) return;
    float* diff_bias = as_floats(args[3]);
    std::fill_n(diff_bias, out, 0.0F);
    for (std::int64_t n = 0; n < g.n; ++n)
      for (std::int64_t o = 0; o < out; ++o) diff_bias[o] += diff_dst[n * out + o];
  });
}

}  // namespace

Prepared prepare(const InnerProductForward& op, const LayoutHints& hints, DataType type) {
  if (op.g.parts > 0) return prepare_parts(op);
  const Descs descs(op.g, op.bias, type);
  std::vector<int> ids = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS};
  if (op.bias) ids.push_back(DNNL_ARG_BIAS);
  ids.push_back(DNNL_ARG_DST);
  return prepare_inner_product<dnnl::inner_product_forward>(
      op, descs.weights, type, hints, 1, std::move(ids),
      [&](const Desc& weights) { return descs.forward(weights, attributes(op.accumulate, op.relu)); });
}

Prepared prepare(const InnerProductBackwardData& op, const LayoutHints& hints, DataType type) {
  if (op.g.parts > 0) return prepare_parts(op);
  const Descs descs(op.g, false, type);
  return prepare_inner_product<dnnl::inner_product_backward_data>(
      op, descs.weights, type, hints, 1, {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
      [&](const Desc& weights) {
        return backward_pd<dnnl::inner_product_backward_data>(descs.forward(descs.weights, attributes()),
                                                              descs.src, weights, descs.dst);
      });
}

Prepared prepare(const InnerProductBackwardWeights& op, const LayoutHints& hints, DataType type) {
  if (op.g.parts > 0) return prepare_parts(op);
  const Descs descs(op.g, op.bias, type);
  std::vector<int> ids = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS};
  if (op.bias) ids.push_back(DNNL_ARG_DIFF_BIAS);
  return prepare_inner_product<dnnl::inner_product_backward_weights>(
      op, any_layout(op.g.weights()), DataType::f32, hints, 2, std::move(ids), [&](const Desc& weights) {
        return backward_pd<dnnl::inner_product_backward_weights>(descs.forward(descs.weights, attributes()),
                                                                 descs.src, weights, descs.bias, descs.dst);
      });
}

}  // namespace convnet::cpu::onednn
