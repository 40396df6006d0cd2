// Operations that are products of an input with weights, and their biases.
#pragma once

#include "kernels/ops/argument.h"
#include "kernels/ops/windows.h"

namespace convnet {

/// Geometry of a 2-d convolution over (N,C,H,W). The output size is given, not derived: windows that hang
/// over the far edge (ceil mode, one-sided padding) see zeros there.
struct ConvGeometry {
  std::int64_t n = 0, c = 0, h = 0, w = 0;  ///< input (N,C,H,W)
  std::int64_t k = 0, oh = 0, ow = 0;       ///< output (N,K,OH,OW); k counts all groups
  Sides filter;                             ///< taps of a filter
  Sides stride = 1, pad = 0;                ///< pad: zeros before the first row and column
  std::int64_t groups = 1;
  Sides dilation = 1;  ///< pixels from one tap of a filter to the next

  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, k, oh, ow}; }
  Dims weights() const { return {k, c / groups, filter.y, filter.x}; }  ///< (O, I/groups, H, W)
  Dims biases() const { return {k}; }
  /// FLOPs of one pass (forward, backward-data or backward-weights). A multiply-add counts 2.
  double flops() const {
    return 2.0 * static_cast<double>(n * k) * static_cast<double>(oh * ow) *
           static_cast<double>(element_count({c / groups, filter.y, filter.x}));
  }
  WindowLine rows() const { return {h, oh, filter.y, stride.y, -pad.y, dilation.y}; }
  WindowLine columns() const { return {w, ow, filter.x, stride.x, -pad.x, dilation.x}; }
  /// Returns whether the filters are square and undilated, and move alike in both directions.
  bool square() const { return filter.equal() && stride.equal() && pad.equal() && dilation == Sides(1); }
  std::vector<std::int64_t> settings() const {
    if (square()) return {stride.x, pad.x};
    return {stride.y, stride.x, pad.y, pad.x, dilation.y, dilation.x};
  }
};

/// Geometry of an inner product: each of an image's `out` outputs is a weighted sum of its `in` inputs. With
/// parts > 0 (layer type sfc) there are that many independent products: part p of the output is computed from
/// part p of the input.
struct InnerProductGeometry {
  std::int64_t n = 0, in = 0, out = 0;
  std::int64_t parts = 0;  ///< 0: not divided, weights (O,I); else (parts,O,I)

  Dims src() const { return {n, in * (parts > 0 ? parts : 1)}; }
  Dims dst() const { return {n, out * (parts > 0 ? parts : 1)}; }
  Dims weights() const { return parts > 0 ? Dims{parts, out, in} : Dims{out, in}; }
  Dims biases() const { return {dst()[1]}; }
  double flops() const {
    return 2.0 * static_cast<double>(n) * static_cast<double>(in) * static_cast<double>(dst()[1]);
  }
};

/// Geometry of a locally-connected layer: a convolution whose filters differ from position to position.
struct LocalGeometry : ConvGeometry {
  /// (OH,OW,O,I/groups,H,W)
  Dims weights() const { return {oh, ow, k, c / groups, filter.y, filter.x}; }
  Dims biases() const { return {oh, ow, k}; }  ///< (OH,OW,O)
};

namespace args {

template <class Geometry>
std::vector<Argument> product_forward(const Geometry& g, bool bias, bool accumulate) {
  std::vector<Argument> all = {read("src", g.src()), read("weights", g.weights())};
  if (bias) all.push_back(read("bias", g.biases()));
  all.push_back(accumulate ? read_write("dst", g.dst()) : write("dst", g.dst()));
  return all;
}
template <class Geometry>
std::vector<Argument> product_backward_data(const Geometry& g) {
  return {read("diff_dst", g.dst()), read("weights", g.weights()), write("diff_src", g.src())};
}
template <class Geometry>
std::vector<Argument> product_backward_weights(const Geometry& g, bool bias) {
  std::vector<Argument> all = {read("src", g.src()), read("diff_dst", g.dst()),
                               write("diff_weights", g.weights())};
  if (bias) all.push_back(write("diff_bias", g.biases()));
  return all;
}

}  // namespace args

/// dst = [dst +] conv(src, weights) [+ bias] [+ addend], then max(0,x) if `relu`. With `moments` it also
/// computes the mean and the variance of every map of dst, as BatchNormMoments does. Only fusions
/// (convnet/plan/fusion.h) use `sum` and `moments`, and only if Target::fuses().
struct ConvForward {
  ConvGeometry g;
  bool bias = true;
  bool accumulate = false;  ///< add to the contents of dst (second and later inputs of a layer)
  bool relu = false;        ///< apply max(0,x) to the result
  bool sum = false;         ///< add `addend`, which may be the memory of dst
  bool moments = false;

  std::string name() const {
    return std::string("conv.forward") + (sum ? "+sum" : "") + (relu ? "+relu" : "") +
           (moments ? "+moments" : "");
  }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all = args::product_forward(g, bias, accumulate);
    if (sum) all.insert(all.end() - 1, args::read("addend", g.dst()));
    if (moments) all.insert(all.end(), {args::write("mean", {g.k}), args::write("variance", {g.k})});
    return all;
  }
  double flops() const { return g.flops(); }
  std::vector<std::int64_t> settings() const { return g.settings(); }
};
/// diff_src = the gradient of the input [+ addend].
struct ConvBackwardData {
  ConvGeometry g;
  bool sum = false;  ///< add `addend`, which may be the memory of diff_src; a fusion, see ConvForward

  std::string name() const { return sum ? "conv.backward_data+sum" : "conv.backward_data"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all = args::product_backward_data(g);
    if (sum) all.insert(all.end() - 1, args::read("addend", g.src()));
    return all;
  }
  double flops() const { return g.flops(); }
  std::vector<std::int64_t> settings() const { return g.settings(); }
};
struct ConvBackwardWeights {
  ConvGeometry g;
  bool bias = true;

  std::string name() const { return "conv.backward_weights"; }
  std::vector<Argument> arguments() const { return args::product_backward_weights(g, bias); }
  double flops() const { return g.flops(); }
  std::vector<std::int64_t> settings() const { return g.settings(); }
};

/// dst = [dst +] src weights^T [+ bias], then max(0,x) if `relu`.
struct InnerProductForward {
  InnerProductGeometry g;
  bool bias = true;
  bool accumulate = false;
  bool relu = false;

  std::string name() const { return relu ? "inner_product.forward+relu" : "inner_product.forward"; }
  std::vector<Argument> arguments() const { return args::product_forward(g, bias, accumulate); }
  double flops() const { return g.flops(); }
};
struct InnerProductBackwardData {
  InnerProductGeometry g;

  std::string name() const { return "inner_product.backward_data"; }
  std::vector<Argument> arguments() const { return args::product_backward_data(g); }
  double flops() const { return g.flops(); }
};
struct InnerProductBackwardWeights {
  InnerProductGeometry g;
  bool bias = true;

  std::string name() const { return "inner_product.backward_weights"; }
  std::vector<Argument> arguments() const { return args::product_backward_weights(g, bias); }
  double flops() const { return g.flops(); }
};

/// dst = [dst +] local(src, weights) [+ bias], then max(0,x) if `relu`.
struct LocalForward {
  LocalGeometry g;
  bool bias = true;
  bool accumulate = false;
  bool relu = false;

  std::string name() const { return relu ? "local.forward+relu" : "local.forward"; }
  std::vector<Argument> arguments() const { return args::product_forward(g, bias, accumulate); }
  double flops() const { return g.flops(); }
  std::vector<std::int64_t> settings() const { return g.settings(); }
};
struct LocalBackwardData {
  LocalGeometry g;

  std::string name() const { return "local.backward_data"; }
  std::vector<Argument> arguments() const { return args::product_backward_data(g); }
  double flops() const { return g.flops(); }
  std::vector<std::int64_t> settings() const { return g.settings(); }
};
struct LocalBackwardWeights {
  LocalGeometry g;
  bool bias = true;

  std::string name() const { return "local.backward_weights"; }
  std::vector<Argument> arguments() const { return args::product_backward_weights(g, bias); }
  double flops() const { return g.flops(); }
  std::vector<std::int64_t> settings() const { return g.settings(); }
};

/// dst[n,...] += bias[...]: adds a bias to every element of an image.
struct AddBias {
  Dims dims;  ///< dims of dst; the bias has the same without the first one

  std::string name() const { return "bias.forward"; }
  std::vector<Argument> arguments() const {
    return {args::read("bias", args::one_image(dims)), args::read_write("dst", dims)};
  }
};
/// diff_bias[...] = sum over n of diff_dst[n,...], by increasing n.
struct BiasBackward {
  Dims dims;  ///< dims of diff_dst

  std::string name() const { return "bias.backward"; }
  std::vector<Argument> arguments() const {
    return {args::read("diff_dst", dims), args::write("diff_bias", args::one_image(dims))};
  }
};

}  // namespace convnet
