// softmax: turns a vector into probabilities.
#include "layers/layer.h"

namespace convnet {
namespace {

struct SoftmaxParams {};

class SoftmaxLayer : public Layer {
 public:
  explicit SoftmaxLayer(std::int64_t numbers)
      : Layer({numbers, 1, 1, false},
              {.function = LayerFunction::softmax, .backward_reads = BackwardReads::output}) {}

  void forward(Lowering& l) const override {
    const std::int64_t images = l.microbatch().images, views = l.microbatch().views;
    const Value probabilities =
        views > 1 ? l.kept("of each view", {images, output.c}, DataType::f32) : l.output();
    l.run(SoftmaxForward{images, output.c}, {l.input(0), probabilities});
    if (views > 1) l.run(AverageViews{images, output.c, views}, {probabilities, l.output()});
  }
  void backward(Lowering& l) const override {
    // A cost that is fused with this layer differentiates both at once.
    if (l.microbatch().fused) return l.backward_unchanged();
    l.run(SoftmaxBackward{l.microbatch().images, output.c},
          {l.output(), l.output_gradient(), l.input_gradient(0)});
  }
};

std::shared_ptr<const Layer> create_softmax(const LayerType& type, const LayerSource& source) {
  SoftmaxParams p;
  if (!parse_params(type, source, p)) return nullptr;
  return std::make_shared<SoftmaxLayer>(source.inputs[0].shape.size());
}

}  // namespace

LayerType softmax_type() {
  LayerType type;
  type.name = "softmax";
  type.doc = "Turns a vector into probabilities.";
  type.formula = "y_i = exp(x_i) / sum exp(x_j)";
  type.example = "[probs]\ntype=softmax\ninputs=fc10";
  type.create = create_softmax;
  return type;
}

}  // namespace convnet
