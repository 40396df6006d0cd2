// Every operation a device can run, described by plain structs. A description says what is computed,
// never where or in which memory layout: that is the backend's answer (backend.h).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kernels/functors.h"
#include "kernels/tensor.h"

namespace convnet {

/// Geometry of a 2-d convolution over (N,C,H,W). The output side is given, not derived: with ceil-mode
/// borders the last window hangs over the far edge onto zeros.
struct ConvGeometry {
  std::int64_t n = 0, c = 0, h = 0, w = 0;       ///< input (N,C,H,W)
  std::int64_t k = 0, oh = 0, ow = 0;            ///< output (N,K,OH,OW); k counts all groups
  std::int64_t filter = 0;                       ///< filter side in pixels
  std::int64_t stride = 1, pad = 0, groups = 1;  ///< pad: zeros before the first row and column

  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, k, oh, ow}; }
  Dims weights() const { return {k, c / groups, filter, filter}; }  ///< (O, I/groups, H, W)
  /// FLOPs of one pass (forward, backward-data or backward-weights), MAC = 2.
  double flops() const;
};

/// dst = [dst +] conv(src, weights) [+ bias], then `activation`. Args: src weights [bias] dst
struct ConvForward {
  ConvGeometry g;
  bool bias = true;
  bool accumulate = false;  ///< add to what dst holds (second and later inputs of a layer)
  bool relu = false;        ///< apply max(0,x) to the result
};
/// Args: diff_dst weights diff_src
struct ConvBackwardData {
  ConvGeometry g;
};
/// Args: src diff_dst diff_weights [diff_bias]
struct ConvBackwardWeights {
  ConvGeometry g;
  bool bias = true;
};

struct InnerProductGeometry {
  std::int64_t n = 0, in = 0, out = 0;
  Dims src() const { return {n, in}; }
  Dims dst() const { return {n, out}; }
  Dims weights() const { return {out, in}; }
  double flops() const {
    return 2.0 * static_cast<double>(n) * static_cast<double>(in) * static_cast<double>(out);
  }
};
/// dst = [dst +] src weights^T [+ bias], then `activation`. Args: src weights [bias] dst
struct InnerProductForward {
  InnerProductGeometry g;
  bool bias = true;
  bool accumulate = false;
  bool relu = false;
};
/// Args: diff_dst weights diff_src
struct InnerProductBackwardData {
  InnerProductGeometry g;
};
/// Args: src diff_dst diff_weights [diff_bias]
struct InnerProductBackwardWeights {
  InnerProductGeometry g;
  bool bias = true;
};

enum class PoolKind { max, average };
/// Windows start at `start + stride*i` and are clipped at the borders of the image.
struct PoolGeometry {
  PoolKind kind = PoolKind::max;
  std::int64_t n = 0, c = 0, h = 0, w = 0, oh = 0, ow = 0;
  std::int64_t size = 0, stride = 1, start = 0;  ///< start may be negative
  bool sum = false;                              ///< average only: do not divide by the clipped window

  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, c, oh, ow}; }
  /// Of max pooling: where in the window the maximum is, row * size + column.
  DataType workspace_type() const { return size <= 16 ? DataType::u8 : DataType::s32; }
};
/// Args: src dst [workspace: max in training only, the position of each maximum, in the layout of dst]
struct PoolForward {
  PoolGeometry g;
  bool keep_workspace = false;  ///< max pooling in training: PoolBackward will follow
};
/// Args: diff_dst [workspace: max only] diff_src
struct PoolBackward {
  PoolGeometry g;
};

/// Cross-map response normalisation: y_c = x_c * (min_div + scale/size * sum x_i^2)^-power over the maps
/// i in [c - floor(size/2), c - floor(size/2) + size), clipped to [0,C).
/// The divisor stays `size` where the window is clipped.
struct CrossMapNorm {
  std::int64_t n = 0, c = 0, h = 0, w = 0;
  std::int64_t size = 0;
  bool blocked = false;  ///< windows are the aligned groups of `size` maps instead
  float scale = 0, power = 0, min_div = 1;
  Dims dims() const { return {n, c, h, w}; }
};
/// Args: src dst
struct CrossMapNormForward {
  CrossMapNorm p;
};
/// Args: src diff_dst diff_src. Recomputes the denominators: nothing is kept from forward.
struct CrossMapNormBackward {
  CrossMapNorm p;
};

/// y = f(x) for every element. Args: src dst (may be the same memory)
struct NeuronForward {
  Neuron f;
  Dims dims;
};
/// dx = dy * f'(x), from y where the function allows it. Args: dst_or_src diff_dst diff_src
/// (diff_src may be diff_dst's memory). Which one is read: neuron_uses_output(f).
struct NeuronBackward {
  Neuron f;
  Dims dims;
};

/// dst = src * mask * scale, where mask is 1 with probability `keep`, else 0. The random number of an
/// element depends on (key, iteration, image, canonical element index) alone (philox.h), so backward runs
/// the same operation on the gradient. Args: src dst step (src and dst may be the same memory)
struct Dropout {
  Dims dims;
  float keep = 0.5F, scale = 1.0F;
  std::uint64_t key = 0;         ///< of the seed and the layer's name
  std::int64_t first_image = 0;  ///< index within the minibatch of this tensor's first image
};

/// dst = src * factor. Args: src dst (may be the same memory)
struct Scale {
  Dims dims;
  float factor = 1;
};

/// Softmax over the second dimension of (N,C). Args: src dst
struct SoftmaxForward {
  std::int64_t n = 0, c = 0;
};
/// Args: dst diff_dst diff_src
struct SoftmaxBackward {
  std::int64_t n = 0, c = 0;
};

/// Multinomial logistic cost. Adds to costs[slot..slot+2]: sum of -log p(label), top-1 errors, top-k errors.
/// log p is floored at -50. Ties share: an image whose label ties with t-1 others for the last places
/// counts fractionally. Sets costs[0] = 1 where a cost or a probability is not finite.
/// Args: labels probs costs
struct LogregForward {
  std::int64_t n = 0, c = 0;
  std::int64_t topk = 1;
  std::int64_t slot = 1;
};
/// diff_src = coeff * d(-log p(label))/dp. Args: labels probs diff_src
struct LogregBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1;
};
/// diff_src = coeff * (p - onehot(label)): softmax and cost differentiated together. Args: labels probs
/// diff_src
struct SoftmaxLogregBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1;
};

/// Brings host data to the device: dst = float(src) - mean. Args: src [mean (1,C,H,W)] dst
struct LoadImages {
  Dims dims;  ///< of dst
  DataType source = DataType::u8;
  bool mean = false;
};
/// Copies integer labels to the device. Args: src dst
struct LoadLabels {
  std::int64_t n = 0;
};

/// Copies between layouts (either side may be plain). Args: src dst
struct Reorder {
  TensorDesc from, to;
};
/// dst += src, both in the layout of the first hint. Args: src dst
struct Accumulate {
  Dims dims;
};
/// dst = 0. Args: dst
struct FillZero {
  TensorDesc what;
};

/// One momentum step (REFERENCE: inc = mom*inc - eps*wc*w + eps*grad; w += inc), with the gradient
/// stored as d(cost)/dw, summed over images, so grad = -gradient/images.
/// (eps, mom, wc) are read from the step block; nothing happens if costs[0] says a cost was not finite. Sets
/// costs[0] = 1 where a weight becomes NaN or infinite: a relu above may hide that from the costs. Works on
/// the flat bytes: padding holds zeros and keeps them. Args: weights increment gradient step costs
struct Update {
  TensorDesc what;
  std::int64_t images = 1;
  std::int64_t rate_index = 0;  ///< entry of the step block's rate table
};

using OpDesc =
    std::variant<ConvForward, ConvBackwardData, ConvBackwardWeights, InnerProductForward,
                 InnerProductBackwardData, InnerProductBackwardWeights, PoolForward, PoolBackward,
                 CrossMapNormForward, CrossMapNormBackward, NeuronForward, NeuronBackward, Dropout, Scale,
                 SoftmaxForward, SoftmaxBackward, LogregForward, LogregBackward, SoftmaxLogregBackward,
                 LoadImages, LoadLabels, Reorder, Accumulate, FillZero, Update>;

/// The scalars that change from step to step, in one device buffer that the host writes before a step.
/// Memory: StepHeader, then `rates` entries.
struct StepHeader {
  std::uint64_t iteration = 0;  ///< minibatches trained since the start of training
};
struct Rates {
  float epsilon = 0, momentum = 0, decay = 0;
};
inline std::int64_t step_block_bytes(std::int64_t rates) {
  return static_cast<std::int64_t>(sizeof(StepHeader)) + rates * static_cast<std::int64_t>(sizeof(Rates));
}

enum class Access { read, write, read_write };
struct Argument {
  std::string name;
  Access access = Access::read;
  Dims dims;
  DataType type = DataType::f32;
};

/// The arguments an operation takes, in order.
std::vector<Argument> arguments(const OpDesc& op);
/// "conv.forward", "update", ...: for plans, profiles and errors.
std::string op_name(const OpDesc& op);
/// Multiply-adds count 2; 0 for operations bound by memory.
double op_flops(const OpDesc& op);

}  // namespace convnet
