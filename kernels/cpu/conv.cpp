// Convolutions with oneDNN: by Winograd's method where that is faster, else directly.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/cpu/onednn.h"

namespace convnet::cpu::onednn {
namespace {

using Desc = dnnl::memory::desc;
using dnnl::algorithm;

/// Returns the dims (O, I/groups, H, W) of the weights, or if there are groups, the dims (G, O/G, I/G, H, W)
/// that oneDNN wants for the same memory.
Dims dnnl_weights(const ConvGeometry& g) {
  if (g.groups == 1) return g.weights();
  return {g.groups, g.k / g.groups, g.c / g.groups, g.filter.y, g.filter.x};
}

/// The descriptors of a convolution whose layouts are all left open, except that of the bias, which is plain
/// f32.
struct OpenConv {
  OpenConv(const ConvGeometry& g, bool with_bias, DataType type)
      : src(any_layout(g.src(), type)),
        dst(any_layout(g.dst(), type)),
        weights(any_layout(dnnl_weights(g), type)),
        strides{g.stride.y, g.stride.x},
        dilates{g.dilation.y - 1, g.dilation.x - 1},
        before{g.pad.y, g.pad.x},
        after{g.rows().end() - g.h, g.columns().end() - g.w} {
    if (with_bias) bias = to_dnnl(TensorDesc{{g.k}, DataType::f32, nullptr});
  }
  Desc src, dst, weights, bias;  ///< a bias without dimensions: there is none
  /// `before` and `after` are the padding. `after` reaches to the end of the last window; it is negative if
  /// no window sees the last pixels.
  Dims strides, dilates, before, after;  ///< dilates: pixels between the taps, 0 for neighbours

  auto forward(algorithm how, const Desc& weights_desc, const dnnl::primitive_attr& attr) const {
    return forward_pd<dnnl::convolution_forward>(attr, dnnl::prop_kind::forward_training, how, src,
                                                 weights_desc, bias, dst, strides, dilates, before, after);
  }
};

/// Returns whether Winograd's method F(4x4,3x3) is expected to beat the direct method; oneDNN has none for
/// bf16. (oneDNN's own choice, convolution_auto, also takes it for convolutions with few channels, where it
/// is several times slower.)
bool winograd_pays(const ConvGeometry& g, DataType type, std::int64_t least_outputs) {
  return type == DataType::f32 && g.filter == Sides(3) && g.stride == Sides(1) && g.dilation == Sides(1) &&
         g.groups == 1 && g.c >= 32 && g.k >= least_outputs;
}

/// Prepares make(algorithm, weights desc) with Winograd's method if it is wanted and available, else with the
/// direct method. `type` is the type of the weights, or of their gradient.
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

/// Returns, for each tap of windows along one side, whether it sees no pixel in any of them.
std::vector<bool> blind_taps(const WindowLine& line) {
  std::vector<bool> blind(static_cast<std::size_t>(line.size), true);
  for (std::int64_t i = 0; i < line.windows; ++i)
    for (std::int64_t tap = 0; tap < line.size; ++tap)
      if (line.holds(line.origin(i) + tap * line.dilation)) blind[static_cast<std::size_t>(tap)] = false;
  return blind;
}

/// Computes the gradient of a convolution's weights, then zeroes the gradients of the taps that see no pixel:
/// oneDNN 2.6 leaves some of them unwritten in convolutions of bf16 numbers with a stride larger than 1.
/// It is not trusted with such taps of dilated filters either, which have more of them.
class BlindTapsZeroed : public PreparedOp {
 public:
  BlindTapsZeroed(Prepared gradients, const ConvGeometry& g) : gradients_(std::move(gradients)) {
    args_ = gradients_->args();
    workspace_bytes_ = gradients_->workspace_bytes();
    algorithm_ = gradients_->algorithm();
    const Blocking b = blocking_of(to_dnnl(args_[kGradient])).value();
    const std::size_t rows = b.dims.size() - 2, columns = rows + 1;
    Dims outer = b.padded_dims;
    for (std::size_t i = 0; i < b.inner_sizes.size(); ++i) {
      outer[static_cast<std::size_t>(b.inner_dims[i])] /= b.inner_sizes[i];
      block_ *= b.inner_sizes[i];
    }
    if (outer[rows] != g.filter.y || outer[columns] != g.filter.x)
      throw std::logic_error("the taps of weights are in blocks");
    blocks_ = {0};
    for (std::size_t d = 0; d < rows; ++d) add_offsets(outer[d], b.strides[d]);
    const std::vector<bool> blind_row = blind_taps(g.rows()), blind_column = blind_taps(g.columns());
    for (std::size_t y = 0; y < blind_row.size(); ++y) {
      for (std::size_t x = 0; x < blind_column.size(); ++x) {
        if (blind_row[y] || blind_column[x])
          taps_.push_back(static_cast<std::int64_t>(y) * b.strides[rows] +
                          static_cast<std::int64_t>(x) * b.strides[columns]);
      }
    }
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override {
    gradients_->run(pointers, workspace, queue);
    float* const gradient = as_floats(pointers[kGradient]);
    for (const std::int64_t block : blocks_)
      for (const std::int64_t tap : taps_) std::fill_n(gradient + block + tap, block_, 0.0F);
  }

 private:
  static constexpr std::size_t kGradient = 2;  ///< index of the argument

  /// Adds a dimension of `count` blocks, `stride` elements apart, to blocks_.
  void add_offsets(std::int64_t count, std::int64_t stride) {
    std::vector<std::int64_t> all;
    for (const std::int64_t offset : blocks_)
      for (std::int64_t i = 0; i < count; ++i) all.push_back(offset + i * stride);
    blocks_ = std::move(all);
  }

  Prepared gradients_;
  std::int64_t block_ = 1;            ///< numbers of a tap that lie together
  std::vector<std::int64_t> blocks_;  ///< offsets of the first tap of each block
  std::vector<std::int64_t> taps_;    ///< offsets of the taps that see no pixel, from the first tap
};

bool has_blind_taps(const ConvGeometry& g) {
  for (const std::vector<bool>& blind : {blind_taps(g.rows()), blind_taps(g.columns())})
    if (std::find(blind.begin(), blind.end(), true) != blind.end()) return true;
  return false;
}

/// Throws if something is fused into `op`. Plans fuse nothing into oneDNN's convolutions; see cpu::fuses().
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
                                                            conv.dilates, conv.before, conv.after);
      });
}

Prepared prepare(const ConvBackwardWeights& op, const LayoutHints& hints, DataType type) {
  const OpenConv conv(op.g, op.bias, type);
  std::vector<int> ids = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS};
  if (op.bias) ids.push_back(DNNL_ARG_DIFF_BIAS);
  Prepared gradients = prepare_conv<dnnl::convolution_backward_weights>(
      op, op.g, DataType::f32, winograd_pays(op.g, type, 64), hint_at(hints, 2), std::move(ids),
      [&](algorithm how, const Desc& weights) {
        return backward_pd<dnnl::convolution_backward_weights>(
            conv.forward(how, conv.weights, attributes()), how, conv.src, weights, conv.bias, conv.dst,
            conv.strides, conv.dilates, conv.before, conv.after);
      });
  const bool neighbours = op.g.stride == Sides(1) && op.g.dilation == Sides(1);
  if (type != DataType::bf16 || neighbours || !has_blind_taps(op.g)) return gradients;
  return std::make_shared<BlindTapsZeroed>(std::move(gradients), op.g);
}

}  // namespace convnet::cpu::onednn
