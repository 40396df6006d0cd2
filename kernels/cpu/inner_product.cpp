// Always two-dimensional: activations plain (N,C), weights (O,I) in the layout oneDNN prefers. With blocked
// 4-d activations the passes want different weight layouts, a reorder of the largest tensors of the net each
// step.
#include <optional>

#include "kernels/cpu/onednn.h"

namespace convnet::cpu {
namespace {

using Desc = dnnl::memory::desc;

struct Descs {
  explicit Descs(const InnerProductGeometry& g, bool with_bias)
      : src(to_dnnl(TensorDesc{g.src(), DataType::f32, nullptr})),
        dst(to_dnnl(TensorDesc{g.dst(), DataType::f32, nullptr})),
        weights(any_layout(g.weights())) {
    if (with_bias) bias = to_dnnl(TensorDesc{{g.out}, DataType::f32, nullptr});
  }
  Desc src, dst, weights, bias;  ///< bias of no dimensions: none

  auto forward(const Desc& weights_desc, const dnnl::primitive_attr& attr) const {
    return forward_pd<dnnl::inner_product_forward>(attr, dnnl::prop_kind::forward_training, src, weights_desc,
                                                   bias, dst);
  }
};

template <class Primitive, class Make>
Prepared prepare_inner_product(const OpDesc& op, const Descs& descs, const LayoutHints& hints,
                               std::size_t weights_at, std::vector<int> ids, const Make& make) {
  return checked(op, [&]() -> Prepared {
    std::optional<Desc> hinted;
    if (weights_at < hints.size() && hints[weights_at]) hinted = to_dnnl(*hints[weights_at]);
    const auto pd = prefer_hinted(make, descs.weights, hinted);
    return std::make_shared<DnnlOp>(op, pd, Primitive(pd), std::move(ids));
  });
}

}  // namespace

Prepared prepare(const InnerProductForward& op, const LayoutHints& hints) {
  const Descs descs(op.g, op.bias);
  std::vector<int> ids = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS};
  if (op.bias) ids.push_back(DNNL_ARG_BIAS);
  ids.push_back(DNNL_ARG_DST);
  return prepare_inner_product<dnnl::inner_product_forward>(
      op, descs, hints, 1, std::move(ids),
      [&](const Desc& weights) { return descs.forward(weights, attributes(op.accumulate, op.relu)); });
}

Prepared prepare(const InnerProductBackwardData& op, const LayoutHints& hints) {
  const Descs descs(op.g, false);
  return prepare_inner_product<dnnl::inner_product_backward_data>(
      op, descs, hints, 1, {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
      [&](const Desc& weights) {
        return backward_pd<dnnl::inner_product_backward_data>(descs.forward(descs.weights, attributes()),
                                                              descs.src, weights, descs.dst);
      });
}

Prepared prepare(const InnerProductBackwardWeights& op, const LayoutHints& hints) {
  const Descs descs(op.g, op.bias);
  std::vector<int> ids = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS};
  if (op.bias) ids.push_back(DNNL_ARG_DIFF_BIAS);
  return prepare_inner_product<dnnl::inner_product_backward_weights>(
      op, descs, hints, 2, std::move(ids), [&](const Desc& weights) {
        return backward_pd<dnnl::inner_product_backward_weights>(descs.forward(descs.weights, attributes()),
                                                                 descs.src, weights, descs.bias, descs.dst);
      });
}

}  // namespace convnet::cpu
