#include <optional>
#include <stdexcept>

#include "kernels/cpu/onednn.h"

namespace convnet::cpu::onednn {
namespace {

using Desc = dnnl::memory::desc;
using dnnl::algorithm;

/// (O, I/groups, H, W), or what has the same bytes with oneDNN's separate dimension for groups.
Dims dnnl_weights(const ConvGeometry& g) {
  if (g.groups == 1) return g.weights();
  return {g.groups, g.k / g.groups, g.c / g.groups, g.filter, g.filter};
}

/// A convolution of numbers of a type, with every layout left open but the bias's, which stays f32.
struct OpenConv {
  OpenConv(const ConvGeometry& g, bool with_bias, DataType type)
      : src(any_layout(g.src(), type)),
        dst(any_layout(g.dst(), type)),
        weights(any_layout(dnnl_weights(g), type)),
        strides{g.stride, g.stride},
        before{g.pad, g.pad},
        after{(g.oh - 1) * g.stride + g.filter - g.h - g.pad,
              (g.ow - 1) * g.stride + g.filter - g.w - g.pad} {
    if (with_bias) bias = to_dnnl(TensorDesc{{g.k}, DataType::f32, nullptr});
  }
  Desc src, dst, weights, bias;  ///< bias of no dimensions: none
  /// `after` reaches to the end of the last window: negative where no window sees the last pixels.
  Dims strides, before, after;

  auto forward(algorithm how, const Desc& weights_desc, const dnnl::primitive_attr& attr) const {
    return forward_pd<dnnl::convolution_forward>(attr, dnnl::prop_kind::forward_training, how, src,
                                                 weights_desc, bias, dst, strides, before, after);
  }
};

/// Winograd F(4x4,3x3) beats the direct method from these channel counts on. (oneDNN's own choice,
/// convolution_auto, also takes it for thin convolutions where it is several times slower.) It has none for
/// bf16.
bool winograd_pays(const ConvGeometry& g, DataType type, std::int64_t least_outputs) {
  return type == DataType::f32 && g.filter == 3 && g.stride == 1 && g.groups == 1 && g.c >= 32 &&
         g.k >= least_outputs;
}

/// Prepares make(algorithm, weights desc): Winograd if wanted and available, else direct. `type`: of the
/// weights, or of their gradient.
template <class Primitive, class Make>
Prepared prepare_conv(const OpDesc& op, const ConvGeometry& g, DataType type, bool winograd,
                      const std::optional<TensorDesc>& hint, std::vector<int> ids, const Make& make) {
  return checked(op, [&]() -> Prepared {
    std::optional<Desc> hinted;
    if (hint && hint->type == type)
      hinted = hint->plain() ? to_dnnl(TensorDesc{dnnl_weights(g), hint->type, nullptr}) : to_dnnl(*hint);
    const auto build = [&](algorithm how, const char* kind) -> Prepared {
      const auto pd = prefer_hinted([&](const Desc& weights) { return make(how, weights); },
                                    any_layout(dnnl_weights(g), type), hinted);
      return std::make_shared<DnnlOp>(op, pd, Primitive(pd), ids, kind);
    };
    if (winograd) {
      try {
        return build(algorithm::convolution_winograd, "winograd");
      } catch (const dnnl::error&) {  // not on this processor or not for this shape
      }
    }
    return build(algorithm::convolution_direct, "direct");
  });
}

/// Plans fuse nothing into the convolutions of this library; see cpu::fuses().
void refuse_fusion(const OpDesc& op) {
  if (is_fused(op)) throw std::logic_error(op_name(op) + ": oneDNN computes it, without what is fused");
}

std::optional<TensorDesc> hint_at(const LayoutHints& hints, std::size_t i) {
  return i < hints.size() ? hints[i] : std::nullopt;
}

}  // namespace

Prepared prepare(const ConvForward& op, const LayoutHints& hints, DataType type) {
  refuse_fusion(op);
  const OpenConv conv(op.g, op.bias, type);
  std::vector<int> ids = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS};
  if (op.bias) ids.push_back(DNNL_ARG_BIAS);
  ids.push_back(DNNL_ARG_DST);
  return prepare_conv<dnnl::convolution_forward>(
      op, op.g, type, !op.accumulate && winograd_pays(op.g, type, 32), hint_at(hints, 1), std::move(ids),
      [&](algorithm how, const Desc& weights) {
        return conv.forward(how, weights, attributes(op.accumulate, op.relu));
      });
}

Prepared prepare(const ConvBackwardData& op, const LayoutHints& hints, DataType type) {
  refuse_fusion(op);
  const OpenConv conv(op.g, false, type);
  return prepare_conv<dnnl::convolution_backward_data>(
      op, op.g, type, winograd_pays(op.g, type, 32), hint_at(hints, 1),
      {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC}, [&](algorithm how, const Desc& weights) {
        return backward_pd<dnnl::convolution_backward_data>(conv.forward(how, conv.weights, attributes()),
                                                            how, conv.src, weights, conv.dst, conv.strides,
                                                            conv.before, conv.after);
      });
}

Prepared prepare(const ConvBackwardWeights& op, const LayoutHints& hints, DataType type) {
  const OpenConv conv(op.g, op.bias, type);
  std::vector<int> ids = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS};
  if (op.bias) ids.push_back(DNNL_ARG_DIFF_BIAS);
  return prepare_conv<dnnl::convolution_backward_weights>(
      op, op.g, DataType::f32, winograd_pays(op.g, type, 64), hint_at(hints, 2), std::move(ids),
      [&](algorithm how, const Desc& weights) {
        return backward_pd<dnnl::convolution_backward_weights>(conv.forward(how, conv.weights, attributes()),
                                                               how, conv.src, weights, conv.bias, conv.dst,
                                                               conv.strides, conv.before, conv.after);
      });
}

}  // namespace convnet::cpu::onednn
