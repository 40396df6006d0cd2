// Learning parameters shared by the weight layers (conv, fc).
#pragma once

#include <string>
#include <vector>

#include "layers/layer.h"

namespace convnet {

/// Keys of every weight layer, one value per input where it concerns a weight matrix.
struct WeightParams {
  std::vector<double> init_w;
  double init_b = 0;
  std::vector<Schedule> eps_w;
  Schedule eps_b;
  std::vector<double> mom_w;
  double mom_b = 0;
  std::vector<double> wc;
};

/// The keys of WeightParams for a layer whose parameters derive from it.
template <class Params>
std::vector<ParamSpec> weight_param_specs() {
  static_assert(std::is_base_of_v<WeightParams, Params>);
  const auto field = [](auto WeightParams::*member) {
    return static_cast<std::remove_cvref_t<decltype(std::declval<Params>().*member)> Params::*>(member);
  };
  return {
      param_per_input(
          "initW", field(&WeightParams::init_w),
          {.fallback = "0.01", .min = 0, .doc = "standard deviation of the initial weights, N(0, initW^2)"}),
      param("initB", field(&WeightParams::init_b), {.fallback = "0", .doc = "initial value of the biases"}),
      param_per_input(
          "epsW", field(&WeightParams::eps_w),
          {.min = 0, .doc = "learning rate of the weights; 0 freezes them", .file = CfgFile::parameters}),
      param("epsB", field(&WeightParams::eps_b),
            {.min = 0, .doc = "learning rate of the biases; 0 freezes them", .file = CfgFile::parameters}),
      param_per_input("momW", field(&WeightParams::mom_w),
                      {.min = 0, .max = 1, .doc = "momentum of the weights", .file = CfgFile::parameters}),
      param("momB", field(&WeightParams::mom_b),
            {.min = 0, .max = 1, .doc = "momentum of the biases", .file = CfgFile::parameters}),
      param_per_input("wc", field(&WeightParams::wc),
                      {.fallback = "0", .min = 0, .doc = "L2 weight decay", .file = CfgFile::parameters}),
  };
}

/// Adds "weights.<input>" of input i, and "biases" (always last) of `outputs` values.
void add_weights(Layer& layer, const WeightParams& params, const std::string& input, std::size_t i,
                 Dims dims);
void add_biases(Layer& layer, const WeightParams& params, std::int64_t outputs);

}  // namespace convnet
