// conv: convolution with filters shared over the image.
#include <algorithm>

#include "layers/windows.h"

namespace convnet {
namespace {

struct ConvParams : WindowParams {
  bool shared_biases = true;
  std::vector<double> norm_min, norm_max;
};

using ConvLayer = WeightedSumLayer<ConvGeometry, ConvForward, ConvBackwardData, ConvBackwardWeights>;

/// A convolution with a bias for every position of every map, which an operation of its own adds.
class UnsharedBiasConvLayer : public ConvLayer {
 public:
  UnsharedBiasConvLayer(FeatureShape shape, std::vector<WeightSpec> matrices, int passes_per_update,
                        std::vector<ConvGeometry> geometries)
      : ConvLayer(shape, {.backward_reads = BackwardReads::inputs}, std::move(matrices), passes_per_update,
                  std::move(geometries), false) {}

  void forward(Lowering& l) const override {
    ConvLayer::forward(l);
    l.run(AddBias{output.dims(l.microbatch().images)}, {l.weights(geometry.size()), l.output()});
  }

  void backward(Lowering& l) const override {
    if (l.wants_weights_gradient(geometry.size()))
      l.run(BiasBackward{output.dims(l.microbatch().images)},
            {l.output_gradient(), l.weights_gradient(geometry.size())});
    ConvLayer::backward(l);
  }
};

std::shared_ptr<const Layer> create_conv(const LayerType& type, const LayerSource& source) {
  ConvParams p;
  if (!parse_weights(type, source, p)) return nullptr;
  const auto is_positive = [](double norm) { return norm > 0; };
  if (source.own_parameter("wcNormMin") != nullptr &&
      std::any_of(p.norm_min.begin(), p.norm_min.end(), is_positive) &&
      std::none_of(p.norm_max.begin(), p.norm_max.end(), is_positive))
    source.warning("wcNormMin", "wcNormMin has no effect without wcNormMax");
  for (std::size_t i = 0; i < std::min(p.norm_min.size(), p.norm_max.size()); ++i) {
    if (p.norm_min[i] <= p.norm_max[i] || p.norm_max[i] <= 0) continue;
    source.error("wcNormMin", "wcNormMin is larger than wcNormMax");
    return nullptr;
  }
  if (!source.inputs_are_right) return nullptr;
  std::vector<ConvGeometry> geometries = window_geometries(source, p);
  if (geometries.empty()) return nullptr;
  std::vector<WeightSpec> weights;
  for (std::size_t i = 0; i < source.inputs.size(); ++i) {
    WeightConstraint rows = rows_of(geometries[i].weights());
    rows.norm_min = p.norm_min[i];
    rows.norm_max = p.norm_max[i];
    add_weights(weights, source, p, i, geometries[i].weights(), rows, 0, geometries[i].groups);
  }
  const ConvGeometry& g = geometries[0];
  const FeatureShape output{g.k, g.oh, g.ow, true};
  add_biases(weights, p, p.shared_biases ? Dims{g.k} : Dims{g.k, g.oh, g.ow});
  if (p.biases && !p.shared_biases)
    return std::make_shared<UnsharedBiasConvLayer>(output, std::move(weights), p.update_period,
                                                   std::move(geometries));
  return std::make_shared<ConvLayer>(output, weighted_sum_facts(), std::move(weights), p.update_period,
                                     std::move(geometries), p.biases);
}

}  // namespace

LayerType conv_type() {
  LayerType type;
  type.name = "conv";
  type.role = LayerRole::weights;
  type.doc =
      "Convolution: every filter is applied at every position of the image. Several inputs are summed.";
  type.formula =
      "output: filters*groups maps of side 1 + (padding + side + paddingEnd - span)/stride, where span = "
      "(filterSize - 1)*dilation + 1, rounded up, so that the last window may hang over the edge onto zeros, "
      "or down (rounding); keys that end in Y are for the vertical direction";
  type.example =
      "[conv1]\ntype=conv\ninputs=data\nchannels=3\nfilters=32\nfilterSize=5\n"
      "padding=2\nstride=1\ninitW=0.0001\nneuron=relu\n\n; parameter file\n"
      "[conv1]\nepsW=0.001\nepsB=0.002\nmomW=0.9\nmomB=0.9\nwc=0.004";
  type.max_inputs = 64;
  type.params = window_param_specs<ConvParams>();
  type.params.push_back(
      param("sharedBiases", &ConvParams::shared_biases,
            {.fallback = "1", .doc = "0: a bias for every position of every map, not one per map"}));
  for (ParamSpec& spec : weight_param_specs<ConvParams>()) type.params.push_back(std::move(spec));
  type.params.push_back(param_per_input(
      "wcNormMin", &ConvParams::norm_min,
      {.fallback = "0",
       .min = 0,
       .doc = "least sqrt(sum (w - mean)^2)/n of a filter of n weights; acts if wcNormMax > 0",
       .file = CfgFile::parameters}));
  type.params.push_back(param_per_input("wcNormMax", &ConvParams::norm_max,
                                        {.fallback = "0",
                                         .min = 0,
                                         .doc = "largest of the same; 0: no such rule",
                                         .file = CfgFile::parameters}));
  type.create = create_conv;
  return type;
}

}  // namespace convnet
