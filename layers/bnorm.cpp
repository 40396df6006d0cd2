// bnorm: batch normalisation (Ioffe and Szegedy, arXiv 1502.03167).
#include "layers/weights.h"

namespace convnet {
namespace {

struct BnormParams : OptimizerParams {
  int channels = 0;
  double epsilon = 1e-5, factor = 0.1;
  bool sync = true;
  double init_scale = 1, init_b = 0;
  Schedule eps_w, eps_b;
  double mom_w = 0, mom_b = 0, wc = 0;
  int update_period = 0;
};

class BnormLayer : public Layer {
 public:
  enum Matrix : std::size_t { scale, shift, running_mean, running_var };

  BnormLayer(const FeatureShape& maps, std::vector<WeightSpec> matrices, const BnormParams& p)
      : Layer(maps,
              {.fuses_neuron = FusesNeuron::quick_and_gradient,
               .sees = p.sync ? SeesImages::of_pass : SeesImages::of_replica,
               .backward_reads = BackwardReads::inputs,
               .backward_in_place = true,
               .cheap = true},
              std::move(matrices), p.update_period),
        shape(maps),
        epsilon(static_cast<float>(p.epsilon)),
        factor(static_cast<float>(p.factor)),
        sync(p.sync) {}

  void before_forward(Lowering& l) const override {
    if (l.microbatch().training)
      l.run(BatchNormMoments{shape.dims(l.microbatch().images)},
            {l.input(0), batch(l, "own mean"), batch(l, "own variance")});
  }

  void forward(Lowering& l) const override {
    if (!l.microbatch().training) return normalise(l, l.weights(running_mean), l.weights(running_var));
    const bool tracks = l.microbatch().random && l.microbatch().first_replica;
    Value mean = batch(l, "own mean"), variance = batch(l, "own variance");
    if (l.images_of_replicas().size() > 1 && (sync || tracks)) {
      merge_moments(l);
      mean = batch(l, "mean");
      variance = batch(l, "variance");
    }
    if (tracks)
      l.run(BatchNormTrack{shape.c, values_of_all(l), factor},
            {mean, variance, l.weights(running_mean), l.weights(running_var)});
    normalise(l);
  }

  void recompute(Lowering& l) const override { normalise(l); }

  /// Sums over the images of this replica. The sums are the gradients of scale and shift, and the gradient of
  /// the input needs them too.
  void before_backward(Lowering& l) const override {
    const auto sum = [&](Matrix matrix, const char* name) {
      if (l.wants_weights_gradient(matrix)) l.keep(name, l.weights_gradient(matrix));
      return batch(l, name);
    };
    const Value diff_scale = sum(scale, "own d scale"), diff_shift = sum(shift, "own d shift");
    const Neuron neuron = l.microbatch().neuron;
    std::vector<Value> args = {l.input(0), l.output_gradient(), batch(l, used(l, "mean")),
                               batch(l, used(l, "variance"))};
    if (!neuron.is_ident()) args.insert(args.end(), {l.weights(scale), l.weights(shift)});
    args.insert(args.end(), {diff_scale, diff_shift});
    l.run(BatchNormBackwardWeights{shape.dims(l.microbatch().images), epsilon, neuron}, args);
  }

  void backward(Lowering& l) const override {
    if (!l.wants_input_gradient(0)) return;
    Value diff_scale = batch(l, "own d scale"), diff_shift = batch(l, "own d shift");
    if (merged(l)) {
      diff_scale = sum_of_replicas(l, "d scale");
      diff_shift = sum_of_replicas(l, "d shift");
    }
    const Neuron neuron = l.microbatch().neuron;
    const Value diff_dst = l.output_gradient();
    std::vector<Value> args = {
        l.input(0), diff_dst,  batch(l, used(l, "mean")), batch(l, used(l, "variance")), l.weights(scale),
        diff_scale, diff_shift};
    if (!neuron.is_ident()) args.push_back(l.weights(shift));
    args.push_back(l.input_gradient(0));
    l.run(BatchNormBackwardData{shape.dims(l.microbatch().images), merged(l) ? values_of_all(l) : values(l),
                                epsilon, neuron},
          args);
  }

 private:
  bool merged(const Lowering& l) const { return sync && l.images_of_replicas().size() > 1; }
  /// Returns the name under which the statistic that this replica normalises by is kept.
  std::string used(const Lowering& l, const std::string& name) const {
    return merged(l) ? name : "own " + name;
  }
  void merge_moments(Lowering& l) const {
    const auto merge = [&](const std::vector<Lowering::Statistics>& parts, const std::vector<Value>& merged) {
      BatchNormMerge op{shape.c, {}};
      std::vector<Value> args;
      for (const Lowering::Statistics& part : parts) {
        op.values.push_back(part.images * shape.h * shape.w);
        args.insert(args.end(), part.values.begin(), part.values.end());
      }
      args.insert(args.end(), merged.begin(), merged.end());
      l.run_across(op, args);
    };
    l.merge_replicas({"own mean", "own variance"}, {"mean", "variance"}, {shape.c}, merge);
  }
  Value sum_of_replicas(Lowering& l, const std::string& name) const {
    const auto sum = [&](const std::vector<Lowering::Statistics>& parts, const std::vector<Value>& merged) {
      std::vector<Value> args;
      for (const Lowering::Statistics& part : parts) args.push_back(part.values[0]);
      const EltwiseSum op{{shape.c}, std::vector<float>(args.size(), 1.0F)};
      args.push_back(merged[0]);
      l.run_across(op, args);
    };
    l.merge_replicas({"own " + name}, {name}, {shape.c}, sum);
    return batch(l, name);
  }
  void normalise(Lowering& l) const {
    normalise(l, batch(l, used(l, "mean")), batch(l, used(l, "variance")));
  }
  void normalise(Lowering& l, Value mean, Value variance) const {
    l.run(BatchNormForward{shape.dims(l.microbatch().images), epsilon, l.microbatch().neuron},
          {l.input(0), mean, variance, l.weights(scale), l.weights(shift), l.output()});
  }
  std::int64_t values(const Lowering& l) const { return l.microbatch().images * shape.h * shape.w; }
  std::int64_t values_of_all(const Lowering& l) const {
    std::int64_t images = 0;
    for (std::int64_t n : l.images_of_replicas()) images += n;
    return images * shape.h * shape.w;
  }
  Value batch(Lowering& l, const std::string& name) const { return l.kept(name, {shape.c}, DataType::f32); }

  const FeatureShape shape;  ///< shape of the input; channels= may read a flat vector as maps
  const float epsilon, factor;
  const bool sync;  ///< normalises by the statistics of all replicas of a pass, not of each replica's images
};

std::shared_ptr<const Layer> create_bnorm(const LayerType& type, const LayerSource& source) {
  BnormParams p;
  if (!parse_own_keys(type, source, p)) return nullptr;
  p.warn_unused(source);
  if (!p.takes_momentum(source, "momW", p.mom_w) || !p.takes_momentum(source, "momB", p.mom_b))
    return nullptr;
  if (!source.inputs_are_right) return nullptr;
  FeatureShape shape = source.inputs[0].shape;
  if (p.channels > 0 && (shape.image || p.channels != shape.c)) {
    const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
    if (!in) return nullptr;
    shape = *in;
  }
  std::vector<WeightSpec> weights;
  const auto add = [&](const char* name, double value, const LearningParams& learning, bool state) {
    WeightSpec spec;
    spec.name = name;
    spec.dims = {shape.c};
    spec.init_value = value;
    spec.learning = learning;
    spec.state = state;
    weights.push_back(std::move(spec));
  };
  add("scale", p.init_scale, p.vector(p.eps_w, p.mom_w, p.wc), false);
  add("shift", p.init_b, p.vector(p.eps_b, p.mom_b), false);
  add("runningMean", 0, {}, true);
  add("runningVar", 1, {}, true);
  return std::make_shared<BnormLayer>(shape, std::move(weights), p);
}

}  // namespace

LayerType bnorm_type() {
  LayerType type;
  type.name = "bnorm";
  type.role = LayerRole::weights;
  type.doc =
      "Batch normalisation of each map, or of each number of a vector: in training over the minibatch, with "
      "--microbatches over a microbatch of all replicas; in tests by running statistics.";
  type.formula =
      "y = scale * (x - mean)/sqrt(variance + epsilon) + shift; running = (1-averageFactor)*running + "
      "averageFactor*batch, of the unbiased variance";
  type.example =
      "[bn1]\ntype=bnorm\ninputs=conv1\nchannels=32\nneuron=relu\n\n"
      "; parameter file\n[bn1]\nepsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9";
  type.params = {
      param("channels", &BnormParams::channels,
            {.fallback = "0",
             .min = 0,
             .max = 1 << 24,
             .unit = "maps",
             .doc = "maps of the input; 0: as they come, each number of a vector for itself"}),
      param("epsilon", &BnormParams::epsilon,
            {.fallback = "1e-5", .min = 1e-12, .doc = "added to the variance"}),
      param(
          "averageFactor", &BnormParams::factor,
          {.fallback = "0.1", .min = 0, .max = 1, .doc = "weight of a minibatch in the running statistics"}),
      param(
          "sync", &BnormParams::sync,
          {.fallback = "1", .doc = "1: the replicas of a pass share their statistics; 0: each has its own"}),
      param("initScale", &BnormParams::init_scale, {.fallback = "1", .doc = "initial scale"}),
      param("initB", &BnormParams::init_b, {.fallback = "0", .doc = "initial shift"}),
      param("epsW", &BnormParams::eps_w,
            {.min = 0, .doc = "learning rate of the scale; 0 freezes it", .file = CfgFile::parameters}),
      param("epsB", &BnormParams::eps_b,
            {.min = 0, .doc = "learning rate of the shift; 0 freezes it", .file = CfgFile::parameters}),
      param("momW", &BnormParams::mom_w,
            {.min = 0, .max = 1, .doc = "momentum of the scale", .file = CfgFile::parameters}),
      param("momB", &BnormParams::mom_b,
            {.min = 0, .max = 1, .doc = "momentum of the shift", .file = CfgFile::parameters}),
      param("wc", &BnormParams::wc,
            {.fallback = "0", .min = 0, .doc = "L2 decay of the scale", .file = CfgFile::parameters}),
      param("updatePeriod", &BnormParams::update_period,
            {.fallback = "0",
             .min = 0,
             .max = 1 << 20,
             .unit = "backward passes",
             .doc = "passes whose gradients make one update; 0: as often as possible",
             .file = CfgFile::parameters}),
  };
  for (ParamSpec& spec : optimizer_param_specs<BnormParams>()) type.params.push_back(std::move(spec));
  type.create = create_bnorm;
  return type;
}

}  // namespace convnet
