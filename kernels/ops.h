// Every operation a device can run, described by plain structs. A description says what is computed,
// never where or in which memory layout: that is the backend's answer (backend.h).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "convnet/base/tensor.h"
#include "kernels/functors.h"

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

/// dst = [dst +] conv(src, weights) [+ bias], then max(0,x) if `relu`. Args: src weights [bias] dst
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

/// Of one image: `out` sums over `in` numbers; with parts > 0 (sfc) that many times, part p of the output
/// reading part p of the input.
struct InnerProductGeometry {
  std::int64_t n = 0, in = 0, out = 0;
  std::int64_t parts = 0;  ///< 0: not divided, weights (O,I); else (parts,O,I)
  Dims src() const { return {n, in * (parts > 0 ? parts : 1)}; }
  Dims dst() const { return {n, out * (parts > 0 ? parts : 1)}; }
  Dims weights() const { return parts > 0 ? Dims{parts, out, in} : Dims{out, in}; }
  double flops() const {
    return 2.0 * static_cast<double>(n) * static_cast<double>(in) * static_cast<double>(dst()[1]);
  }
};
/// dst = [dst +] src weights^T [+ bias], then max(0,x) if `relu`. Args: src weights [bias] dst
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

/// Geometry of a locally-connected layer: a convolution whose filters differ from position to position. The
/// windows are those of ConvGeometry.
struct LocalGeometry : ConvGeometry {
  Dims weights() const { return {oh, ow, k, c / groups, filter, filter}; }  ///< (OH,OW,O,I/groups,H,W)
  Dims biases() const { return {oh, ow, k}; }                               ///< (OH,OW,O)
};
/// dst = [dst +] local(src, weights) [+ bias], then max(0,x) if `relu`. Args: src weights [bias] dst
struct LocalForward {
  LocalGeometry g;
  bool bias = true;
  bool accumulate = false;
  bool relu = false;
};
/// Args: diff_dst weights diff_src
struct LocalBackwardData {
  LocalGeometry g;
};
/// Args: src diff_dst diff_weights [diff_bias]
struct LocalBackwardWeights {
  LocalGeometry g;
  bool bias = true;
};

/// dst[n,...] += bias[...]: a bias for every element of an image. Args: bias dst
struct AddBias {
  Dims dims;  ///< of dst; the bias lacks its first dimension
};
/// diff_bias[...] = sum over n of diff_dst[n,...], by increasing n. Args: diff_dst diff_bias
struct BiasBackward {
  Dims dims;
};

/// max_abs: the element of the largest absolute value, with its sign.
enum class PoolKind { max, average, max_abs };
/// Windows start at `start + stride*i` and are clipped at the borders of the image.
struct PoolGeometry {
  PoolKind kind = PoolKind::max;
  std::int64_t n = 0, c = 0, h = 0, w = 0, oh = 0, ow = 0;
  std::int64_t size = 0, stride = 1, start = 0;  ///< start may be negative
  bool sum = false;                              ///< average only: do not divide by the clipped window

  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, c, oh, ow}; }
  bool keeps_workspace() const { return kind != PoolKind::average; }
  /// Of max and max_abs pooling: where in the window the maximum is, row * size + column, or kNowhere.
  DataType workspace_type() const { return size < 16 ? DataType::u8 : DataType::s32; }
  static constexpr std::int32_t kNowhere = -1;  ///< or what is left of it in the workspace's type
};
/// The first of equal maxima counts. Args: src dst [workspace: max, max_abs in training only, the position of
/// each maximum, in the layout of dst]
struct PoolForward {
  PoolGeometry g;
  bool keep_workspace = false;  ///< max, max_abs in training: PoolBackward will follow
  /// Of max, max_abs: dst = max(0, pooled), which gets no gradient where it is not positive: such a maximum
  /// is kNowhere.
  bool relu = false;
};
/// Args: diff_dst [workspace: max, max_abs only] diff_src
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

/// Maximum over windows of maps: output map o takes the maps [start + stride*o, + size), clipped to [0,C).
struct CrossMapPool {
  std::int64_t n = 0, c = 0, h = 0, w = 0, outputs = 0;
  std::int64_t size = 0, stride = 1, start = 0;
  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, outputs, h, w}; }
};
/// Args: src dst
struct CrossMapPoolForward {
  CrossMapPool p;
};
/// The first of equal maxima takes the gradient. Args: src diff_dst diff_src
struct CrossMapPoolBackward {
  CrossMapPool p;
};

/// Response normalisation within each map: y = x * (min_div + scale/size^2 * sum z^2)^-power over the window
/// of `size` x `size` pixels that starts size/2 (rounded down) before the pixel, clipped at the borders.
/// z = x (rnorm), or with `contrast` z_j = x_j minus the mean of j's own clipped window (cnorm).
/// The divisor stays size^2 where the window is clipped.
struct WindowNorm {
  std::int64_t n = 0, c = 0, h = 0, w = 0;
  std::int64_t size = 0;
  bool contrast = false;
  float scale = 0, power = 0, min_div = 1;
  Dims dims() const { return {n, c, h, w}; }
};
/// Args: src dst
struct WindowNormForward {
  WindowNorm p;
};
/// The exact gradient, through the means too. Args: src diff_dst diff_src
struct WindowNormBackward {
  WindowNorm p;
};

/// Batch normalisation over (N,C,H,W) per channel, or (N,C) per number. Mean and (population) variance of
/// every channel; of no values at all: 0 and 1. Args: src mean (C) variance (C)
struct BatchNormMoments {
  Dims dims;
};
/// Mean and variance over several parts of a batch, from those of each part, merged by increasing index (Chan
/// et al., "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
/// Args: mean_0 variance_0 mean_1 variance_1 ... mean variance, all (C)
struct BatchNormMerge {
  std::int64_t channels = 0;
  std::vector<std::int64_t> values;  ///< per channel, of each part
};
/// dst = (src - mean) / sqrt(variance + epsilon) * scale + shift, then max(0,x) if `relu`.
/// Args: src mean variance scale shift dst, all but src and dst of (C)
struct BatchNormForward {
  Dims dims;
  float epsilon = 1e-5F;
  bool relu = false;
};
/// running = (1-factor) * running + factor * batch; the variance made unbiased by m/(m-1) where the batch has
/// m > 1 values per channel. A batch without values changes nothing.
/// Args: mean variance running_mean running_variance, all (C)
struct BatchNormTrack {
  std::int64_t channels = 0;
  std::int64_t values = 0;  ///< m: images * H * W
  float factor = 0.1F;
};
/// diff_shift = sum dy; diff_scale = sum dy * (x - mean)/sqrt(variance + epsilon).
/// Args: src diff_dst mean variance diff_scale diff_shift
struct BatchNormBackwardWeights {
  Dims dims;
  float epsilon = 1e-5F;
};
/// dx = scale/sqrt(variance + epsilon) * (dy - diff_shift/m - xhat * diff_scale/m), m = values.
/// Args: src diff_dst mean variance scale diff_scale diff_shift diff_src (may be diff_dst's memory)
struct BatchNormBackwardData {
  Dims dims;
  std::int64_t values = 0;  ///< over which mean and variance were taken
  float epsilon = 1e-5F;
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
  std::int64_t first_element =
      0;  ///< canonical index of an image's first element, where this is a part of it
};

/// dst = src * factor. Args: src dst (may be the same memory)
struct Scale {
  Dims dims;
  float factor = 1;
};

/// y = max(0, x + noise), noise ~ N(0, 1/(1+exp(-x))), keyed like Dropout; without noise nrelu is
/// NeuronForward. Its gradient is that of relu. Args: src dst step (src and dst may be the same memory)
struct NoisyRelu {
  Dims dims;
  std::uint64_t key = 0;
  std::int64_t first_image = 0, first_element = 0;
};

/// dst = sum over k of coeffs[k] * src_k. Args: src_0 ... dst
struct EltwiseSum {
  Dims dims;
  std::vector<float> coeffs;  ///< one per input
};
/// dst = max over k of src_k. Args: src_0 ... dst
struct EltwiseMax {
  Dims dims;
  std::int64_t inputs = 2;
};
/// diff_src = diff_dst where input `index` is the first maximum, else 0. Args: src_0 ... diff_dst diff_src
struct EltwiseMaxBackward {
  Dims dims;
  std::int64_t inputs = 2;
  std::int64_t index = 0;
};

/// The features of one image of all inputs, one after the other in (C,H,W) order. Args: src_0 ... dst
struct Concat {
  std::vector<Dims> from;
  Dims to;
};
/// dst = the features [offset, offset + size of dst) of each image of src, in (C,H,W) order. Args: src dst
struct Split {
  Dims from, to;
  std::int64_t offset = 0;
};
/// y_j = sum over k < stride of x_{j*stride+k}, of (N,C). Args: src dst
struct GroupSumForward {
  std::int64_t n = 0, c = 0, stride = 1;
};
/// Args: diff_dst diff_src
struct GroupSumBackward {
  std::int64_t n = 0, c = 0, stride = 1;
};

/// dst(y,x) = src(start_y + step_y*y, start_x + step_x*x), every read inside the image: crop (step 1), href
/// (step_x -1 from the last column), nailbed (step = stride).
struct Sampling {
  std::int64_t n = 0, c = 0, h = 0, w = 0, oh = 0, ow = 0;
  std::int64_t start_y = 0, start_x = 0, step_y = 1, step_x = 1;
  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, c, oh, ow}; }
};
/// Args: src dst
struct SampleForward {
  Sampling p;
};
/// Pixels that were not taken get 0. Args: diff_dst diff_src
struct SampleBackward {
  Sampling p;
};

/// Separable Gaussian of `size` taps (odd), weights exp(-d^2/(2 stdev^2)) normalised to sum 1, zeros outside
/// the image. Symmetric: backward is the same operation on the gradient. Args: src dst
struct Blur {
  Dims dims;
  std::int64_t size = 3;
  float stdev = 1;
};
/// Bilinear: output pixel i reads source coordinate i*scale + (side - outputs*scale)/2, clamped to
/// [0, side - 1.01] (to 0 for one pixel). Args: src dst
struct Resize {
  std::int64_t n = 0, c = 0, h = 0, w = 0, oh = 0, ow = 0;
  float scale = 1;
  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, c, oh, ow}; }
};
/// rscale. In training one draw per image: s in 0...side - floor(side/max_scale) with probability
/// proportional to (s+1)^2, size = target + s, factor uniform in [max(1, side/(1+size)), side/size]; the
/// image is resized by the factor to floor(side/factor) pixels and a random target x target crop of it taken.
/// Otherwise: Resize by max_scale to the target. Draws are keyed by (key, iteration, image). Args: src dst
/// step
struct RandomScale {
  std::int64_t n = 0, c = 0, side = 0, target = 0;
  float max_scale = 1;
  bool training = true;
  std::uint64_t key = 0;
  std::int64_t first_image = 0;
  Dims src() const { return {n, c, side, side}; }
  Dims dst() const { return {n, c, target, target}; }
};
enum class ColorSpace { yuv, lab };
/// RGB maps (N,3,H,W) to YUV or CIE L*a*b* (input in 0-1). `center` subtracts 50 from L*. Args: src dst
struct ColorTransform {
  Dims dims;
  ColorSpace to = ColorSpace::yuv;
  bool center = false;
};

/// Softmax over the second dimension of (N,C). Each `views` rows, the views of one image, then all get their
/// mean: n is a multiple of it. Args: src dst
struct SoftmaxForward {
  std::int64_t n = 0, c = 0;
  std::int64_t views = 1;
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

/// Multinomial cost of one-hot (or soft) labels. Adds -sum t*log p (log p floored at -50) and top-1 errors to
/// costs[slot..slot+1]. An image whose most probable outputs, t of them tied, hold r with the largest label
/// counts 1 - r/t errors. Flags costs[0] like LogregForward. Args: labels probs costs
struct CrossentForward {
  std::int64_t n = 0, c = 0, slot = 1;
};
/// diff_src = coeff * -t/p, p floored at exp(-50). Args: labels probs diff_src
struct CrossentBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1;
};
/// Softmax and cross entropy differentiated together: diff_src = coeff * (p * (sum of the image's labels) -
/// t). Args: labels probs diff_src
struct SoftmaxCrossentBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1;
};
/// Binary cross entropy of labels t in [0,1]: -sum(pos_weight*t*log p + (1-t)*log(1-p)), logs floored at -50.
/// Adds to costs[slot...]: the cost, the fraction of outputs on the wrong side of 0.5 per image, and top-1
/// errors as CrossentForward. With `per_class` (cost.dce) the third value is left out and three counts follow
/// for every class: outputs p > 0.5 that are right, all p > 0.5, all labels t > 0.5.
/// Args: labels probs costs
struct BinaryCostForward {
  std::int64_t n = 0, c = 0, slot = 1;
  float pos_weight = 1;
  bool per_class = false;
};
/// diff_src = coeff * ((1-t)/(1-p) - pos_weight*t/p), divisors floored at exp(-50). Args: labels probs
/// diff_src
struct BinaryCostBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1, pos_weight = 1;
};
/// Logistic and BinaryCost differentiated together: diff_src = coeff * ((1-t)*p - pos_weight*t*(1-p)).
/// Args: labels probs diff_src
struct LogisticBinaryCostBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1, pos_weight = 1;
};
/// Adds sum x^2 to costs[slot]. Args: src costs
struct SquaresForward {
  Dims dims;
  std::int64_t slot = 1;
};
/// diff_src = coeff * 2x. Args: src diff_src
struct SquaresBackward {
  Dims dims;
  float coeff = 1;
};

/// Brings host data to the device: dst = float(src) - mean, of the features [offset, offset + size of dst) of
/// what is seen of every image. Args: src [mean (1,...)] dst
struct LoadImages {
  Dims from;  ///< of what is seen of src, and of mean (the first dimension aside)
  Dims dims;  ///< of dst
  std::int64_t offset = 0;
  DataType source = DataType::u8;
  bool mean = false;
  /// (C,H,W) of images that come whole, each with its Crop (crop.h), which `from` is the size of: src is
  /// their bytes. Empty: src is what is seen.
  Dims whole = {};
};
/// Copies integer labels to the device. Args: src dst
struct LoadLabels {
  std::int64_t n = 0;
};

/// Copies between layouts (either side may be plain). Args: src dst
struct Reorder {
  TensorDesc from, to;
};
/// Copies runs of floats. Args: src_0 ... dst_0 ...
struct CopyRuns {
  std::vector<std::int64_t> counts;  ///< floats of each run
};
/// dst += src, both in the layout of the first hint. Args: src dst
struct Accumulate {
  Dims dims;
};
/// dst = 0. Args: dst
struct FillZero {
  TensorDesc what;
};

/// One momentum step (REFERENCE: inc = mom*inc - eps*wc*w + eps*grad; w += inc), with the gradients
/// stored as d(cost)/dw, summed over images and here by increasing index, so grad = -sum/images.
/// (eps, mom, wc) are read from the step block; nothing happens if broken[0] says a cost was not finite. Sets
/// costs[0] = 1 where a weight becomes NaN or infinite: a relu above may hide that from the costs. Works on
/// ranges of the flat memory of any number of matrices: padding holds zeros and keeps them.
/// Args: of each part weights increment gradient_0 ... [accumulator], then step broken costs
struct Update {
  struct Part {
    std::int64_t count = 0;       ///< floats
    std::int64_t images = 1;      ///< that the gradients are summed over; without any, nothing happens
    std::int64_t rate_index = 0;  ///< entry of the step block's rate table
    int gradients = 1;
    /// The gradients are added to those of earlier minibatches in the accumulator; the step is made, and the
    /// accumulator zeroed, where the step block gives a number of images.
    bool accumulates = false;

    int arguments() const { return 2 + gradients + (accumulates ? 1 : 0); }
  };
  std::vector<Part> parts;
};

/// broken[0] = 1 if the first entry of any of the costs is not 0, else 0. Args: costs_0 ... broken
struct AnyBroken {
  std::int64_t devices = 1;
};

/// A constraint on the rows of a weight matrix, after its update (REFERENCE: wcNormMin/Max, then wball). The
/// weights are seen as (outer, groups, inner): a row is a (group, all outer and inner) vector of
/// outer * inner values. Rows of zeros stay. Args: weights [step]
struct Constrain {
  TensorDesc what;
  std::int64_t outer = 1, groups = 1, inner = 1;
  /// Rows whose sqrt(sum (w - mean)^2) / n lies outside [norm_min, norm_max] are scaled onto it; norm_max 0:
  /// no such rule.
  float norm_min = 0, norm_max = 0;
  float ball = 0;       ///< rows are scaled to this norm; 0: no such rule
  bool shrink = false;  ///< ball: only rows longer than it
  /// Only where the step block says that an update over several minibatches is due, as Update::accumulates.
  bool when_due = false;
  std::int64_t rate_index = 0;
};

using AnyOp = std::variant<
    ConvForward, ConvBackwardData, ConvBackwardWeights, InnerProductForward, InnerProductBackwardData,
    InnerProductBackwardWeights, PoolForward, PoolBackward, CrossMapNormForward, CrossMapNormBackward,
    NeuronForward, NeuronBackward, Dropout, Scale, SoftmaxForward, SoftmaxBackward, LogregForward,
    LogregBackward, SoftmaxLogregBackward, LoadImages, LoadLabels, Reorder, Accumulate, FillZero, Update,
    LocalForward, LocalBackwardData, LocalBackwardWeights, AddBias, BiasBackward, CrossMapPoolForward,
    CrossMapPoolBackward, WindowNormForward, WindowNormBackward, BatchNormMoments, BatchNormForward,
    BatchNormTrack, BatchNormBackwardWeights, BatchNormBackwardData, NoisyRelu, EltwiseSum, EltwiseMax,
    EltwiseMaxBackward, Concat, Split, GroupSumForward, GroupSumBackward, SampleForward, SampleBackward, Blur,
    Resize, RandomScale, ColorTransform, CrossentForward, CrossentBackward, BinaryCostForward,
    BinaryCostBackward, LogisticBinaryCostBackward, SquaresForward, SquaresBackward, Constrain, AnyBroken,
    BatchNormMerge, CopyRuns, SoftmaxCrossentBackward>;

/// An operation. A class of its own so that copying one, which is a case for each kind, is compiled once.
class OpDesc : public AnyOp {
 public:
  using AnyOp::AnyOp;
  OpDesc();
  OpDesc(const OpDesc& other);
  OpDesc(OpDesc&& other) noexcept;
  OpDesc& operator=(const OpDesc& other);
  OpDesc& operator=(OpDesc&& other) noexcept;
  ~OpDesc();
};

/// The scalars that change from step to step, in one device buffer that the host writes before a step.
/// Memory: StepHeader, then `rates` entries.
struct StepHeader {
  std::uint64_t iteration = 0;  ///< minibatches trained since the start of training
};
struct Rates {
  float epsilon = 0, momentum = 0, decay = 0;
  float images = 0;  ///< Update::accumulates: images since the last step; 0: the next step is not due
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
