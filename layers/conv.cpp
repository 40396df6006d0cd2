// conv: convolution with filters shared over the image.
#include <algorithm>

#include "layers/layer.h"
#include "layers/weights.h"

namespace convnet {
namespace {

struct ConvParams : WeightParams {
  std::vector<int> channels, filter_size, padding, stride, groups;
  int filters = 0, modules = 0;
};

/// 1 + ceil((2*pad + img - filterSize) / stride): the last window may hang over the far edge onto zeros.
std::int64_t conv_side(std::int64_t img, std::int64_t filter, std::int64_t pad, std::int64_t stride) {
  return 1 + (2 * pad + img - filter + stride - 1) / stride;
}

class ConvLayer : public Layer {
 public:
  std::vector<ConvGeometry> geometry;  ///< one per input; n is set when lowering

  void forward(Lowering& l) const override {
    for (std::size_t i = 0; i < geometry.size(); ++i) {
      const bool last = i + 1 == geometry.size();
      ConvForward op{at(i, l), i == 0, i > 0, last && l.fused()};
      std::vector<Value> args = {l.input(i), l.weights(i)};
      if (op.bias) args.push_back(l.weights(bias()));
      args.push_back(l.output());
      l.run(op, args);
    }
  }

  void backward(Lowering& l) const override {
    for (std::size_t i = 0; i < geometry.size(); ++i) {
      const bool with_bias = i == 0 && l.wants_weights_gradient(bias());
      if (with_bias || l.wants_weights_gradient(i)) {
        std::vector<Value> args = {l.input(i), l.output_gradient(), l.weights_gradient(i)};
        if (with_bias) args.push_back(l.weights_gradient(bias()));
        l.run(ConvBackwardWeights{at(i, l), with_bias}, args);
      }
      if (l.wants_input_gradient(i))
        l.run(ConvBackwardData{at(i, l)}, {l.output_gradient(), l.weights(i), l.input_gradient(i)});
    }
  }

 private:
  std::size_t bias() const { return geometry.size(); }
  ConvGeometry at(std::size_t i, const Lowering& l) const {
    ConvGeometry g = geometry[i];
    g.n = l.images();
    return g;
  }
};

/// The geometry of input i, or nullopt after reporting why there is none.
std::optional<ConvGeometry> check_geometry(const LayerSource& source, const ConvParams& p, std::size_t i) {
  const std::optional<FeatureShape> in = as_maps(source, i, p.channels[i], "channels");
  if (!in) return std::nullopt;
  ConvGeometry g;
  g.c = in->c;
  g.h = in->h;
  g.w = in->w;
  g.filter = p.filter_size[i];
  g.stride = p.stride[i];
  g.pad = p.padding[i];
  g.groups = p.groups[i];
  g.k = static_cast<std::int64_t>(p.filters) * g.groups;
  if (g.c % g.groups != 0) {
    source.error("groups", "groups=" + std::to_string(g.groups) + " does not divide the " +
                               std::to_string(g.c) + " channels of input '" + source.inputs[i].name + "'");
    return std::nullopt;
  }
  if (g.pad >= g.filter) {
    source.error("padding", "padding=" + std::to_string(g.pad) + " must be less than filterSize=" +
                                std::to_string(g.filter) + ", or whole windows would see only zeros");
    return std::nullopt;
  }
  for (std::int64_t side : {g.h, g.w}) {
    if (2 * g.pad + side < g.filter) {
      source.error("filterSize", "filterSize=" + std::to_string(g.filter) + " is larger than the input '" +
                                     source.inputs[i].name + "' (" + in->str() + ") with its padding of " +
                                     std::to_string(g.pad));
      return std::nullopt;
    }
  }
  g.oh = conv_side(g.h, g.filter, g.pad, g.stride);
  g.ow = conv_side(g.w, g.filter, g.pad, g.stride);
  if (p.modules > 0) {
    for (std::int64_t side : {g.h, g.w}) {
      // -pad + stride*(side-1) + filterSize >= img: the windows must cover the image.
      if (g.stride * (p.modules - 1) + g.filter - g.pad < side) {
        source.error("modulesX", "modulesX=" + std::to_string(p.modules) + " windows of " +
                                     std::to_string(g.filter) + " pixels do not cover the " +
                                     std::to_string(side) + " pixels of input '" + source.inputs[i].name +
                                     "'; it takes at least " +
                                     std::to_string(conv_side(side, g.filter, g.pad, g.stride)));
        return std::nullopt;
      }
      if (g.stride * (p.modules - 1) - g.pad >= side) {
        source.error("modulesX", "modulesX=" + std::to_string(p.modules) +
                                     " puts whole windows outside the image; use at most " +
                                     std::to_string((side + g.pad - 1) / g.stride + 1));
        return std::nullopt;
      }
    }
    g.oh = g.ow = p.modules;
  }
  return g;
}

std::shared_ptr<const Layer> create(const LayerType& type, const LayerSource& source) {
  ConvParams p;
  if (!parse_params(type, source, p)) return nullptr;
  auto layer = std::make_shared<ConvLayer>();
  for (std::size_t i = 0; i < source.inputs.size(); ++i) {
    const std::optional<ConvGeometry> g = check_geometry(source, p, i);
    if (!g) return nullptr;
    if (i > 0 && g->dst() != layer->geometry[0].dst()) {
      source.error("inputs", "input '" + source.inputs[i].name + "' gives an output of " +
                                 to_string(Dims{g->k, g->oh, g->ow}) + ", but '" + source.inputs[0].name +
                                 "' gives " + layer->output.str());
      return nullptr;
    }
    layer->geometry.push_back(*g);
    layer->output = {g->k, g->oh, g->ow, true};
    add_weights(*layer, p, source.inputs[i].name, i, g->weights());
  }
  add_biases(*layer, p, layer->output.c);
  layer->backward_reads_input = true;
  return layer;
}

}  // namespace

LayerType conv_type() {
  LayerType type;
  type.name = "conv";
  type.role = LayerRole::weights;
  type.doc =
      "Convolution: every filter is applied at every position of the image. Several inputs are summed.";
  type.formula =
      "output: filters*groups maps of side 1 + ceil((2*padding + side - filterSize)/stride); the last window "
      "may hang "
      "over the edge onto zeros";
  type.example =
      "[conv1]\ntype=conv\ninputs=data\nchannels=3\nfilters=32\nfilterSize=5\npadding=2\nstride=1\ninitW=0."
      "0001\n"
      "neuron=relu\n\n; parameter file\n[conv1]\nepsW=0.001\nepsB=0.002\nmomW=0.9\nmomB=0.9\nwc=0.004";
  type.max_inputs = 64;
  type.params = {
      param_per_input("channels", &ConvParams::channels,
                      {.min = 1, .max = 1 << 20, .unit = "maps", .doc = "maps of the input"}),
      param("filters", &ConvParams::filters,
            {.min = 1, .max = 1 << 20, .unit = "maps", .doc = "output maps of each group"}),
      param_per_input("filterSize", &ConvParams::filter_size,
                      {.min = 1, .max = 4096, .unit = "pixels", .doc = "side of the square filters"}),
      param_per_input("padding", &ConvParams::padding,
                      {.fallback = "0",
                       .min = 0,
                       .max = 4096,
                       .unit = "pixels",
                       .doc = "border of zeros around the image",
                       .aliases = {"pad"}}),
      param_per_input("stride", &ConvParams::stride,
                      {.fallback = "1",
                       .min = 1,
                       .max = 4096,
                       .unit = "pixels",
                       .doc = "step between neighbouring windows"}),
      param_per_input("groups", &ConvParams::groups,
                      {.fallback = "1",
                       .min = 1,
                       .max = 1 << 20,
                       .doc = "divides input and output maps into separate convolutions"}),
      param("modulesX", &ConvParams::modules,
            {.fallback = "0",
             .min = 0,
             .max = 1 << 20,
             .unit = "windows",
             .doc = "side of the output; 0 covers the image"}),
      param_hint("sumWidth", {.doc = "performance hint of the original", .aliases = {"partialSum"}}),
  };
  for (ParamSpec& spec : weight_param_specs<ConvParams>()) type.params.push_back(std::move(spec));
  type.create = create;
  return type;
}

}  // namespace convnet
