// The layers that are not sums of their inputs, as formulas in double precision: values, and every partial
// derivative of an output by an input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "tests/reference/taps.h"

namespace convnet::reference {

using Values = std::vector<double>;

/// d(output `to`)/d(element `from` of input `input`), both counted over the whole minibatch.
struct Slope {
  std::size_t input = 0, from = 0, to = 0;
  double value = 0;
};

struct Result {
  Values y;
  std::vector<Slope> slopes;
};

/// "relu", "tanh[1.7,0.6]", ...
Neuron parse_neuron(const std::string& text);
/// The neuron; nrelu acts as in tests, where it is relu.
Result neuron_layer(const Neuron& f, const Values& x);

/// The rules sum, largest and largest_abs, for `images` images.
Result apply_taps(const TapLayer& layer, const std::vector<const Values*>& inputs, std::int64_t images);

struct NormParams {
  double min_div = 1, factor = 0, power = 0;  ///< x * (min_div + factor * sum)^-power
};
/// The rules normalise and normalise_sd; the taps are each element's window.
Result response_norm(const TapLayer& layer, const NormParams& p, const Values& x, std::int64_t images);

/// Computes softmax over the last dimension of (N,c).
Result softmax_layer(const Values& x, std::int64_t c);

/// Moments of a batch and bnorm's outputs for it.
struct BatchNormResult {
  Result result;
  Values normalised;      ///< before scale and shift
  Values mean, variance;  ///< used: of the batch (population), or those given
};
/// x: (N, channels, pixels). With `running` moments (mean, variance) they are used, else those of the batch.
BatchNormResult batch_norm(const Values& x, std::int64_t channels, std::int64_t pixels, double epsilon,
                           const Values& scale, const Values& shift,
                           const std::vector<const Values*>& running);

/// (N,3,pixels), values in 0-1. Has no slopes.
Result lab_layer(const Values& x, std::int64_t images, bool center);

struct CostParams {
  double pos_weight = 1;
  std::int64_t topk = 1;
};
struct CostResult {
  Values totals;    ///< summed over the images; [0] is minimised
  Values gradient;  ///< gradient of totals[0] with respect to the probabilities (cost.sum2: its input)
};
/// `labels`: cost.logreg a class per image, the others a row per image; cost.sum2 ignores them.
CostResult cost_layer(const std::string& type, const CostParams& p, const Values& labels, const Values& x,
                      std::int64_t images);

}  // namespace convnet::reference
