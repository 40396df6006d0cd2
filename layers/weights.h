// The common parts of the weight layers (fc, sfc, conv, local): learning parameters, initial weights,
// sharing, constraints.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "layers/layer.h"

namespace convnet {

/// The optimiser keys of every layer that learns.
struct OptimizerParams {
  Optimizer optimizer = Optimizer::sgd;
  double beta2 = 0, adam_epsilon = 0, trust = 0;

  /// Reports a momentum, the value of `key`, that the optimiser cannot use, and returns whether it can.
  bool takes_momentum(const LayerSource& source, const char* key, double momentum) const;
  /// Warns of keys of the layer's own section that its optimiser does not use.
  void warn_unused(const LayerSource& source) const;
  /// Returns the learning parameters of a weight matrix, whose rate LARS scales.
  LearningParams weights(Schedule epsilon, double momentum, double decay) const {
    return {std::move(epsilon),
            momentum,
            decay,
            optimizer,
            beta2,
            adam_epsilon,
            optimizer == Optimizer::lars ? trust : 0};
  }
  /// Returns the learning parameters of biases and other vectors.
  LearningParams vector(Schedule epsilon, double momentum, double decay = 0) const {
    return {std::move(epsilon), momentum, decay, optimizer, beta2, adam_epsilon, 0};
  }
};

/// The standard deviation of initial weights: a number, or a rule that depends on the numbers of inputs and
/// outputs.
struct InitialDeviation {
  enum class Rule { number, he, xavier };
  Rule rule = Rule::number;
  double number = 0;

  /// Returns the deviation for weights with which every output sums `fan_in` products, and every input
  /// contributes to `fan_out` outputs.
  double of(double fan_in, double fan_out) const;
};
/// Parses a number that is not negative, "he" or "xavier".
std::string parse_value(const std::string& text, const ParamSpec& spec, InitialDeviation& out);

namespace detail {
template <>
struct TypeName<InitialDeviation> {
  static constexpr const char* value = "number, he or xavier";
};
}  // namespace detail

/// An entry of weightSource: matrix `index` of layer `layer`. No layer: own weights.
struct WeightSource {
  std::string layer;
  int index = 0;
};

/// The keys of every weight layer. Those that concern a weight matrix have one value for each input.
struct WeightParams : OptimizerParams {
  std::vector<InitialDeviation> init_w;
  double init_b = 0;
  std::string init_w_func, init_b_func;
  std::vector<std::string> weight_source;
  InitFunction init_w_call, init_b_call;     ///< of init_w_func, init_b_func
  std::vector<WeightSource> weight_sources;  ///< of weight_source, one for each input
  bool biases = true;
  std::vector<Schedule> eps_w;
  Schedule eps_b;
  std::vector<double> mom_w;
  double mom_b = 0;
  std::vector<double> wc, wball;
  int update_period = 0;
};

/// Returns a field of Base as a field of Params, which derives from it.
template <class Params, class Base, class T>
auto field_of(T Base::*member) {
  return static_cast<T Params::*>(member);
}

/// The keys of OptimizerParams for a layer whose parameters derive from it.
template <class Params>
std::vector<ParamSpec> optimizer_param_specs() {
  const auto field = [](auto member) { return field_of<Params>(member); };
  return {
      param_choice(
          "optimizer", field(&OptimizerParams::optimizer),
          {{"sgd", Optimizer::sgd},
           {"nesterov", Optimizer::nesterov},
           {"adamw", Optimizer::adamw},
           {"rmsprop", Optimizer::rmsprop},
           {"lars", Optimizer::lars}},
          {.fallback = "sgd",
           .doc = "sgd: momentum, nesterov: Nesterov momentum, adamw: Adam with decoupled weight decay, "
                  "whose beta1 is momW (momB), rmsprop: sgd on gradients divided by the root of the mean of "
                  "their squares, lars: sgd whose rate follows the norms of each weight matrix",
           .file = CfgFile::parameters}),
      param("beta2", field(&OptimizerParams::beta2),
            {.fallback = "0.999",
             .min = 0,
             .max = 0.9999999,
             .doc = "adamw, rmsprop: decay of the running mean of squared gradients",
             .file = CfgFile::parameters}),
      param("adamEpsilon", field(&OptimizerParams::adam_epsilon),
            {.fallback = "1e-8",
             .min = 1e-30,
             .doc = "adamw, rmsprop: added to the root of the mean of squared gradients",
             .file = CfgFile::parameters}),
      param("trust", field(&OptimizerParams::trust),
            {.fallback = "0.001",
             .min = 1e-12,
             .doc = "lars: the rate of weights is epsW * trust * norm(w) "
                    "/ (norm(g) + wc*norm(w)), that of biases epsB",
             .file = CfgFile::parameters}),
  };
}

/// The keys of WeightParams for a layer whose parameters derive from it.
template <class Params>
std::vector<ParamSpec> weight_param_specs() {
  static_assert(std::is_base_of_v<WeightParams, Params>);
  const auto field = [](auto member) { return field_of<Params>(member); };
  std::vector<ParamSpec> specs = {
      param_per_input("initW", field(&WeightParams::init_w),
                      {.fallback = "0.01",
                       .min = 0,
                       .doc = "standard deviation of the initial weights, N(0, initW^2); he: "
                              "sqrt(2/inputs), xavier: sqrt(2/(inputs+outputs)), of a unit (arXiv "
                              "1502.01852; Glorot and Bengio 2010)"}),
      param("initB", field(&WeightParams::init_b), {.fallback = "0", .doc = "initial value of the biases"}),
      param("initWFunc", field(&WeightParams::init_w_func),
            {.fallback = "",
             .doc = "initial weights from makew(checkpoint), the same layer's there, or "
                    "makewcat(checkpoint,layer,...), several layers' outputs one after the other"}),
      param("initBFunc", field(&WeightParams::init_b_func),
            {.fallback = "",
             .doc = "initial biases from makeb(checkpoint), "
                    "makebcat(checkpoint,layer,...) or makeb_vec(value,...)"}),
      param("weightSource", field(&WeightParams::weight_source),
            {.fallback = "",
             .doc = "layer[index] whose weights each input shares, an empty entry for own weights; the layer "
                    "itself may be named for its later inputs"}),
      param("biases", field(&WeightParams::biases),
            {.fallback = "1", .doc = "0: no biases, and no epsB and momB"}),
      param_per_input(
          "epsW", field(&WeightParams::eps_w),
          {.min = 0, .doc = "learning rate of the weights; 0 freezes them", .file = CfgFile::parameters}),
      param("epsB", field(&WeightParams::eps_b),
            {.min = 0, .doc = "learning rate of the biases; 0 freezes them", .file = CfgFile::parameters}),
      param_per_input("momW", field(&WeightParams::mom_w),
                      {.min = 0, .max = 1, .doc = "momentum of the weights", .file = CfgFile::parameters}),
      param("momB", field(&WeightParams::mom_b),
            {.min = 0, .max = 1, .doc = "momentum of the biases", .file = CfgFile::parameters}),
      param_per_input(
          "wc", field(&WeightParams::wc),
          {.fallback = "0",
           .min = 0,
           .doc = "L2 weight decay; weights that no cost's gradient reaches (coeff=0 makes none) are not "
                  "updated and do not decay",
           .file = CfgFile::parameters}),
      param_per_input("wball", field(&WeightParams::wball),
                      {.fallback = "0",
                       .min = 0,
                       .doc = "norm that every output's weights are scaled to after an update (sfc: those of "
                              "all parts together; local: that they may have at most); 0: none",
                       .file = CfgFile::parameters}),
      param("updatePeriod", field(&WeightParams::update_period),
            {.fallback = "0",
             .min = 0,
             .max = 1 << 20,
             .unit = "backward passes",
             .doc = "passes whose gradients make one update; 0: as often as possible",
             .file = CfgFile::parameters}),
      param_hint("superEps",
                 {.doc = "ignored; it had no effect in cuda-convnet2, either", .file = CfgFile::parameters}),
      param_hint("superMom",
                 {.doc = "ignored; it had no effect in cuda-convnet2, either", .file = CfgFile::parameters}),
  };
  for (ParamSpec& spec : optimizer_param_specs<Params>()) specs.push_back(std::move(spec));
  return specs;
}

/// Parses and checks the keys of a weight layer, with a warning for keys that never had an effect. Like
/// parse_own_keys(), it does not look at shapes.
bool parse_weight_params(const LayerType& type, const LayerSource& source, WeightParams& params,
                         void* object);
template <class Params>
bool parse_weights(const LayerType& type, const LayerSource& source, Params& params) {
  return parse_weight_params(type, source, params, &params);
}

/// add_weights() adds "weights.<input>" of input i ("weights.<input>.1" if an earlier input is the same
/// layer); add_biases() adds "biases", which must come last, if the layer has any. `constraint` says which
/// weights are the row of an output; its norms are filled in here. The outputs are those of `groups` groups,
/// each of which reads inputs of its own.
void add_weights(std::vector<WeightSpec>& weights, const LayerSource& source, const WeightParams& params,
                 std::size_t i, Dims dims, WeightConstraint constraint, int output_axis = 0,
                 std::int64_t groups = 1);
void add_biases(std::vector<WeightSpec>& weights, const WeightParams& params, Dims dims, int output_axis = 0);

/// Returns the facts of a layer whose backward multiplies by its inputs and whose forward operation can apply
/// a relu.
inline LayerFacts weighted_sum_facts() {
  return {.fuses_neuron = FusesNeuron::relu, .backward_reads = BackwardReads::inputs};
}

/// A layer that sums products of its inputs with weights, and adds biases: fc, conv and local.
template <class Geometry, class Forward, class BackwardData, class BackwardWeights>
class WeightedSumLayer : public Layer {
 public:
  /// `geometries` has one geometry for each input; its n is set when lowering. `with_biases` says whether the
  /// operations add biases, the last of `matrices`.
  WeightedSumLayer(FeatureShape shape, LayerFacts layer_facts, std::vector<WeightSpec> matrices,
                   int passes_per_update, std::vector<Geometry> geometries, bool with_biases)
      : Layer(shape, std::move(layer_facts), std::move(matrices), passes_per_update),
        geometry(std::move(geometries)),
        biases(with_biases) {}

  void forward(Lowering& l) const override {
    for (std::size_t i = 0; i < geometry.size(); ++i) {
      const Forward op = product(i, l.microbatch());
      std::vector<Value> args = {l.input(i), l.weights(i)};
      if (op.bias) args.push_back(l.weights(geometry.size()));
      args.push_back(l.output());
      l.run(op, args);
    }
  }

  void backward(Lowering& l) const override {
    for (std::size_t i = 0; i < geometry.size(); ++i) {
      const bool with_bias = i == 0 && biases && l.wants_weights_gradient(geometry.size());
      if (with_bias || l.wants_weights_gradient(i)) {
        std::vector<Value> args = {l.input(i), l.output_gradient(), l.weights_gradient(i)};
        if (with_bias) args.push_back(l.weights_gradient(geometry.size()));
        l.run(BackwardWeights{at(i, l.microbatch()), with_bias}, args);
      }
      if (l.wants_input_gradient(i))
        l.run(BackwardData{at(i, l.microbatch())}, {l.output_gradient(), l.weights(i), l.input_gradient(i)});
    }
  }

  std::vector<Product> products(const Microbatch& microbatch) const override {
    std::vector<Product> all;
    for (std::size_t i = 0; i < geometry.size(); ++i) {
      const Forward op = product(i, microbatch);
      all.push_back({op, {-1, static_cast<int>(i)}});
      if (op.bias) all.back().matrices.push_back(static_cast<int>(geometry.size()));
      all.back().matrices.push_back(-1);
    }
    return all;
  }

 protected:
  const std::vector<Geometry> geometry;
  const bool biases;

 private:
  Geometry at(std::size_t i, const Microbatch& microbatch) const {
    Geometry g = geometry[i];
    g.n = microbatch.images;
    return g;
  }
  /// Returns the operation that adds the product of input i, the first one to the biases.
  Forward product(std::size_t i, const Microbatch& microbatch) const {
    const bool last = i + 1 == geometry.size();
    return {at(i, microbatch), i == 0 && biases, i > 0, last && microbatch.fused};
  }
};

/// Returns a constraint, without bounds, for fc and conv weights: they have dims[0] rows, of all other dims.
WeightConstraint rows_of(const Dims& dims);

}  // namespace convnet
