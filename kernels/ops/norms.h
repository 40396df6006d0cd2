// Response normalisation across and within maps, and batch normalisation.
#pragma once

#include <numeric>

#include "kernels/ops/argument.h"
#include "kernels/ops/neuron.h"

namespace convnet {

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
struct CrossMapNormForward {
  CrossMapNorm p;

  std::string name() const { return "cmrnorm.forward"; }
  std::vector<Argument> arguments() const { return args::src_to_dst(p.dims(), p.dims()); }
  std::vector<std::int64_t> settings() const { return {p.size}; }
};
/// The gradient; it computes the denominators again, because forward keeps nothing.
struct CrossMapNormBackward {
  CrossMapNorm p;

  std::string name() const { return "cmrnorm.backward"; }
  std::vector<Argument> arguments() const { return args::from_src_and_diff(p.dims(), p.dims()); }
  std::vector<std::int64_t> settings() const { return {p.size}; }
};

/// Response normalisation within each map: y = x * (min_div + scale/size^2 * sum z^2)^-power. The sum is over
/// the window of `size` x `size` pixels that starts size/2 (rounded down) before the pixel, clipped at the
/// borders. z = x (rnorm), or with `contrast` (cnorm) z_j is x_j minus the mean of the clipped window around
/// j. The divisor stays size^2 where the window is clipped.
struct WindowNorm {
  std::int64_t n = 0, c = 0, h = 0, w = 0;
  std::int64_t size = 0;
  bool contrast = false;
  float scale = 0, power = 0, min_div = 1;

  Dims dims() const { return {n, c, h, w}; }
};
struct WindowNormForward {
  WindowNorm p;

  std::string name() const { return p.contrast ? "cnorm.forward" : "rnorm.forward"; }
  std::vector<Argument> arguments() const { return args::src_to_dst(p.dims(), p.dims()); }
  std::vector<std::int64_t> settings() const { return {p.size}; }
};
/// Computes the exact gradient, through the means too.
struct WindowNormBackward {
  WindowNorm p;

  std::string name() const { return p.contrast ? "cnorm.backward" : "rnorm.backward"; }
  std::vector<Argument> arguments() const { return args::from_src_and_diff(p.dims(), p.dims()); }
  std::vector<std::int64_t> settings() const { return {p.size}; }
};

/// Mean and (population) variance of every channel of (N,C,H,W), or of every column of (N,C), for batch
/// normalisation. If there are no values, they are 0 and 1.
struct BatchNormMoments {
  Dims dims;
  bool track = false;  ///< does BatchNormTrack, too; a fusion, see ConvForward
  float factor = 0;    ///< of BatchNormTrack

  std::string name() const { return track ? "bnorm.moments+track" : "bnorm.moments"; }
  std::int64_t values() const { return dims[1] == 0 ? 0 : element_count(dims) / dims[1]; }
  std::vector<Argument> arguments() const {
    const Dims c = {dims[1]};
    std::vector<Argument> all = {args::read("src", dims), args::write("mean", c), args::write("variance", c)};
    if (track)
      all.insert(all.end(), {args::read_write("running_mean", c), args::read_write("running_variance", c)});
    return all;
  }
};
/// Merges the means and variances of several parts of a batch, in the order of the parts (Chan et al.,
/// "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
struct BatchNormMerge {
  std::int64_t channels = 0;
  std::vector<std::int64_t> values;  ///< values per channel in each part
  bool track = false;                ///< does BatchNormTrack, too; a fusion, see ConvForward
  float factor = 0;                  ///< of BatchNormTrack

  std::string name() const { return track ? "bnorm.merge+track" : "bnorm.merge"; }
  std::int64_t all_values() const { return std::accumulate(values.begin(), values.end(), std::int64_t{0}); }
  std::vector<Argument> arguments() const {
    const Dims c = {channels};
    std::vector<Argument> all;
    for (std::size_t i = 0; i < values.size(); ++i) {
      all.push_back(args::read("mean", c));
      all.push_back(args::read("variance", c));
    }
    all.push_back(args::write("mean", c));
    all.push_back(args::write("variance", c));
    if (track)
      all.insert(all.end(), {args::read_write("running_mean", c), args::read_write("running_variance", c)});
    return all;
  }
};
/// Returns what a neuron that an operation applies adds to the operation's name.
inline std::string suffix_of(const Neuron& applied) {
  return applied.is_ident() ? "" : std::string("+") + neuron_name(applied.kind);
}

/// dst = neuron((src - mean) / sqrt(variance + epsilon) * scale + shift [+ addend]). The neuron is_quick(),
/// or ident.
struct BatchNormForward {
  Dims dims;
  float epsilon = 1e-5F;
  Neuron neuron = {};
  bool sum = false;  ///< add `addend`, which may be the memory of dst; a fusion, see ConvForward

  std::string name() const { return std::string("bnorm.forward") + (sum ? "+sum" : "") + suffix_of(neuron); }
  std::vector<Argument> arguments() const {
    const Dims c = {dims[1]};
    std::vector<Argument> all = {args::read("src", dims), args::read("mean", c), args::read("variance", c),
                                 args::read("scale", c), args::read("shift", c)};
    if (sum) all.push_back(args::read("addend", dims));
    all.push_back(args::write("dst", dims));
    return all;
  }
};
/// running = (1-factor) * running + factor * batch, for mean and variance. The variance of the batch is first
/// made unbiased: times m/(m-1), where m is the number of values per channel. A batch of fewer than two
/// values changes nothing, because it has no variance.
struct BatchNormTrack {
  std::int64_t channels = 0;
  std::int64_t values = 0;  ///< m: images * H * W
  float factor = 0.1F;

  std::string name() const { return "bnorm.track"; }
  std::vector<Argument> arguments() const {
    const Dims c = {channels};
    return {args::read("mean", c), args::read("variance", c), args::read_write("running_mean", c),
            args::read_write("running_variance", c)};
  }
};
/// diff_shift = sum dy; diff_scale = sum dy * (x - mean)/sqrt(variance + epsilon). If there is a neuron,
/// diff_dst is the gradient of the output of BatchNormForward with that neuron, and dy is diff_dst times the
/// neuron's slope, whose place is computed again from scale and shift.
/// Fusions, see ConvForward: if `sum`, addend is added to diff_dst; if `mask`, that is then 0 wherever
/// `output`, that of a relu above, is not above 0. In both cases it is written, too, for
/// BatchNormBackwardData, which multiplies it by the neuron's slope again: what is written lacks the slope.
struct BatchNormBackwardWeights {
  Dims dims;
  float epsilon = 1e-5F;
  Neuron neuron = {};
  bool sum = false, mask = false;

  bool writes_dy() const { return sum || mask; }
  std::string name() const {
    return std::string("bnorm.backward_weights") + (sum ? "+sum" : "") + (mask ? "+mask" : "") +
           suffix_of(neuron);
  }
  std::vector<Argument> arguments() const {
    const Dims c = {dims[1]};
    std::vector<Argument> all = {args::read("src", dims), args::read("diff_dst", dims), args::read("mean", c),
                                 args::read("variance", c)};
    if (!neuron.is_ident()) all.insert(all.end(), {args::read("scale", c), args::read("shift", c)});
    if (sum) all.push_back(args::read("addend", dims));
    if (mask) all.push_back(args::read("output", dims));
    all.insert(all.end(), {args::write("diff_scale", c), args::write("diff_shift", c)});
    if (writes_dy()) all.push_back(args::write("dy", dims));  // may be the memory of diff_dst
    return all;
  }
};
/// dx = scale/sqrt(variance + epsilon) * (dy - diff_shift/m - xhat * diff_scale/m) [+ addend], with m =
/// values and xhat = (x - mean)/sqrt(variance + epsilon). diff_src may be the memory of diff_dst. `neuron`
/// has the meaning that it has in BatchNormBackwardWeights.
struct BatchNormBackwardData {
  Dims dims;
  std::int64_t values = 0;  ///< number of values per channel in mean and variance
  float epsilon = 1e-5F;
  Neuron neuron = {};
  bool sum = false;  ///< add `addend`, which may be the memory of diff_src; a fusion, see ConvForward

  std::string name() const {
    return std::string("bnorm.backward_data") + (sum ? "+sum" : "") + suffix_of(neuron);
  }
  std::vector<Argument> arguments() const {
    const Dims c = {dims[1]};
    std::vector<Argument> all = {args::read("src", dims),    args::read("diff_dst", dims),
                                 args::read("mean", c),      args::read("variance", c),
                                 args::read("scale", c),     args::read("diff_scale", c),
                                 args::read("diff_shift", c)};
    if (!neuron.is_ident()) all.push_back(args::read("shift", c));
    if (sum) all.push_back(args::read("addend", dims));
    all.push_back(args::write("diff_src", dims));
    return all;
  }
};

}  // namespace convnet
