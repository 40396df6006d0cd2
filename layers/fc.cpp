// fc, sfc: fully-connected layers.
#include "layers/weights.h"

namespace convnet {
namespace {

struct FcParams : WeightParams {
  OutputCount outputs;
  int parts = 0;
  // Not read: the graph reads these keys itself, and `parallel` also of layers of other types.
  bool model_parallel = false;
  int replica_parts = 0;
};

class FcLayer : public WeightedSumLayer<InnerProductGeometry, InnerProductForward, InnerProductBackwardData,
                                        InnerProductBackwardWeights> {
 public:
  using WeightedSumLayer::WeightedSumLayer;

  std::shared_ptr<const Layer> part(std::int64_t, std::int64_t count) const override {
    std::vector<InnerProductGeometry> geometries = geometry;
    for (InnerProductGeometry& g : geometries) g.out = count;
    std::vector<WeightSpec> matrices = weights;
    for (WeightSpec& w : matrices) {
      w.dims[0] = count;
      w.constraint.groups = std::min(w.constraint.groups, count);
    }
    return std::make_shared<FcLayer>(FeatureShape{count, 1, 1, false}, weighted_sum_facts(),
                                     std::move(matrices), update_period, std::move(geometries), biases);
  }
};

/// fc has parts = 0.
std::shared_ptr<const Layer> create_fc(const LayerType& type, const LayerSource& source) {
  FcParams p;
  if (!parse_weights(type, source, p)) return nullptr;
  const std::optional<std::int64_t> outputs = p.outputs.of(source, "outputs");
  if (!outputs || !source.inputs_are_right) return nullptr;
  const std::int64_t parts = std::max(p.parts, 1);
  std::vector<InnerProductGeometry> geometries;
  std::vector<WeightSpec> weights;
  for (std::size_t i = 0; i < source.inputs.size(); ++i) {
    const LayerInput& input = source.inputs[i];
    if (input.shape.size() % parts != 0) {
      source.error("parts", "parts=" + std::to_string(parts) + " does not divide the " +
                                std::to_string(input.shape.size()) + " numbers of input '" + input.name +
                                "'");
      return nullptr;
    }
    const InnerProductGeometry g{0, input.shape.size() / parts, *outputs, p.parts};
    geometries.push_back(g);
    WeightConstraint rows = rows_of(g.weights());
    // An output's weights over all parts together are one row.
    if (p.parts > 0) rows = {.outer = g.parts, .groups = g.out, .inner = g.in};
    add_weights(weights, source, p, i, g.weights(), rows, p.parts > 0 ? 1 : 0);
  }
  const FeatureShape output{*outputs * parts, 1, 1, false};
  add_biases(weights, p, {output.c});
  LayerFacts facts = weighted_sum_facts();
  if (p.parts == 0) facts.division = Division::outputs;
  return std::make_shared<FcLayer>(output, facts, std::move(weights), p.update_period, std::move(geometries),
                                   p.biases);
}

}  // namespace

LayerType fc_type() {
  LayerType type;
  type.name = "fc";
  type.role = LayerRole::weights;
  type.doc = "Fully-connected layer: every output is a weighted sum of all inputs, plus a bias.";
  type.formula = "y = sum over inputs of W x + b";
  type.example =
      "[fc10]\ntype=fc\ninputs=pool3\noutputs=10\ninitW=0.1\n\n"
      "; parameter file\n[fc10]\nepsW=0.001\nepsB=0.002\nmomW=0.9\nmomB=0.9\nwc=1";
  type.max_inputs = 64;
  type.params = {
      param("outputs", &FcParams::outputs,
            {.min = 1, .max = 1 << 24, .doc = "number of outputs, or classes: as many as the data has"}),
      param_choice("parallel", &FcParams::model_parallel, {{"data", false}, {"model", true}},
                   {.fallback = "data",
                    .doc = "what the devices of gpu= divide: data, the minibatch, a replica on each; model, "
                           "the outputs of each replica"}),
      param("parts", &FcParams::replica_parts,
            {.fallback = "0",
             .min = 0,
             .max = 1024,
             .doc =
                 "with parallel=model: number of devices that each replica is divided over, a divisor of the "
                 "number of devices in gpu=; 0: all of them (without gpu=: as the layer that it follows)"})};
  for (ParamSpec& spec : weight_param_specs<FcParams>()) type.params.push_back(std::move(spec));
  type.create = create_fc;
  return type;
}

LayerType sfc_type() {
  LayerType type;
  type.name = "sfc";
  type.role = LayerRole::weights;
  type.doc =
      "Split fully-connected layer: inputs and outputs are cut into parts, and each part sees only its own.";
  type.formula = "y_p = sum over inputs of W_p x_p + b_p, for every part p";
  type.example =
      "[sfc1]\ntype=sfc\ninputs=pool3\noutputs=16\nparts=4\ninitW=0.1\n\n"
      "; parameter file\n[sfc1]\nepsW=0.001\nepsB=0.002\nmomW=0.9\nmomB=0.9";
  type.max_inputs = 64;
  type.params = {param("outputs", &FcParams::outputs,
                       {.min = 1,
                        .max = 1 << 24,
                        .doc = "number of outputs of each part, or classes: as many as the data has"}),
                 param("parts", &FcParams::parts, {.min = 1, .max = 1 << 20, .doc = "number of parts"})};
  for (ParamSpec& spec : weight_param_specs<FcParams>()) type.params.push_back(std::move(spec));
  type.create = create_fc;
  return type;
}

}  // namespace convnet
