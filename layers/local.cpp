// local: a convolution whose filters and biases differ from position to position.
#include "layers/windows.h"

namespace convnet {
namespace {

struct LocalParams : WindowParams {};

using LocalLayer = WeightedSumLayer<LocalGeometry, LocalForward, LocalBackwardData, LocalBackwardWeights>;

std::shared_ptr<const Layer> create_local(const LayerType& type, const LayerSource& source) {
  LocalParams p;
  if (!parse_weights(type, source, p) || !source.inputs_are_right) return nullptr;
  std::vector<LocalGeometry> geometries;
  for (const ConvGeometry& g : window_geometries(source, p)) geometries.push_back({g});
  if (geometries.empty()) return nullptr;
  std::vector<WeightSpec> weights;
  for (std::size_t i = 0; i < source.inputs.size(); ++i) {
    const LocalGeometry& g = geometries[i];
    WeightConstraint filters;
    filters.groups = g.oh * g.ow * g.k;
    filters.inner = g.c / g.groups * g.filter.area();
    filters.shrink = true;
    add_weights(weights, source, p, i, g.weights(), filters, 2, g.groups);
  }
  const LocalGeometry& g = geometries[0];
  const FeatureShape output{g.k, g.oh, g.ow, true};
  add_biases(weights, p, g.biases(), 2);
  return std::make_shared<LocalLayer>(output, weighted_sum_facts(), std::move(weights), p.update_period,
                                      std::move(geometries), p.biases);
}

}  // namespace

LayerType local_type() {
  LayerType type;
  type.name = "local";
  type.role = LayerRole::weights;
  type.doc = "Locally-connected layer: a convolution with own filters and biases at every position.";
  type.formula = "output: as conv";
  type.example =
      "[local3]\ntype=local\ninputs=pool2\nchannels=64\nfilters=64\n"
      "filterSize=3\npadding=1\nstride=1\ninitW=0.04\nneuron=relu\n\n; parameter file\n"
      "[local3]\nepsW=0.001\nepsB=0.002\nmomW=0.9\nmomB=0.9\nwc=0.004";
  type.max_inputs = 64;
  type.params = window_param_specs<LocalParams>();
  for (ParamSpec& spec : weight_param_specs<LocalParams>()) type.params.push_back(std::move(spec));
  type.create = create_local;
  return type;
}

}  // namespace convnet
