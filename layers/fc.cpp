// fc: fully-connected layer.
#include "layers/layer.h"
#include "layers/weights.h"

namespace convnet {
namespace {

struct FcParams : WeightParams {
  int outputs = 0;
};

class FcLayer : public Layer {
 public:
  std::vector<InnerProductGeometry> geometry;  ///< one per input; n is set when lowering

  void forward(Lowering& l) const override {
    for (std::size_t i = 0; i < geometry.size(); ++i) {
      const bool last = i + 1 == geometry.size();
      InnerProductForward op{at(i, l), i == 0, i > 0, last && l.fused()};
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
        l.run(InnerProductBackwardWeights{at(i, l), with_bias}, args);
      }
      if (l.wants_input_gradient(i))
        l.run(InnerProductBackwardData{at(i, l)}, {l.output_gradient(), l.weights(i), l.input_gradient(i)});
    }
  }

 private:
  std::size_t bias() const { return geometry.size(); }
  InnerProductGeometry at(std::size_t i, const Lowering& l) const {
    InnerProductGeometry g = geometry[i];
    g.n = l.images();
    return g;
  }
};

std::shared_ptr<const Layer> create(const LayerType& type, const LayerSource& source) {
  FcParams p;
  if (!parse_params(type, source, p)) return nullptr;
  auto layer = std::make_shared<FcLayer>();
  for (std::size_t i = 0; i < source.inputs.size(); ++i) {
    const std::int64_t in = source.inputs[i].shape.size();
    layer->geometry.push_back({0, in, p.outputs});
    add_weights(*layer, p, source.inputs[i].name, i, {p.outputs, in});
  }
  add_biases(*layer, p, p.outputs);
  layer->output = {p.outputs, 1, 1, false};
  layer->backward_reads_input = true;
  return layer;
}

}  // namespace

LayerType fc_type() {
  LayerType type;
  type.name = "fc";
  type.role = LayerRole::weights;
  type.doc = "Fully-connected layer: every output is a weighted sum of all inputs, plus a bias.";
  type.formula = "y = sum over inputs of W x + b";
  type.example =
      "[fc10]\ntype=fc\ninputs=pool3\noutputs=10\ninitW=0.1\n\n; parameter "
      "file\n[fc10]\nepsW=0.001\nepsB=0.002\n"
      "momW=0.9\nmomB=0.9\nwc=1";
  type.max_inputs = 64;
  type.params = {
      param("outputs", &FcParams::outputs, {.min = 1, .max = 1 << 24, .doc = "number of outputs"})};
  for (ParamSpec& spec : weight_param_specs<FcParams>()) type.params.push_back(std::move(spec));
  type.create = create;
  return type;
}

}  // namespace convnet
