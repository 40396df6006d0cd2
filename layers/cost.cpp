// cost.logreg: multinomial logistic regression.
#include "layers/layer.h"

namespace convnet {
namespace {

struct LogregParams {
  double coeff = 1;
  int topk = 1;
};

class LogregLayer : public Layer {
 public:
  std::int64_t classes = 0;
  int topk = 1;

  void forward(Lowering& l) const override {
    l.run(LogregForward{l.images(), classes, topk, l.cost_slot()}, {l.input(0), l.input(1), l.costs()});
  }
  void backward(Lowering& l) const override {
    const auto coeff = static_cast<float>(cost_coeff);
    const std::vector<Value> args = {l.input(0), l.input(1), l.input_gradient(1)};
    if (l.fused()) {
      l.run(SoftmaxLogregBackward{l.images(), classes, coeff}, args);
    } else {
      l.run(LogregBackward{l.images(), classes, coeff}, args);
    }
  }
};

std::shared_ptr<const Layer> create(const LayerType& type, const LayerSource& source) {
  LogregParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const LayerInput& labels = source.inputs[0];
  const LayerInput& probs = source.inputs[1];
  if (labels.classes == 0) {
    source.error("inputs", "the first input must be labels, a data layer with dataIdx=1; '" + labels.name +
                               "' is of type '" + labels.type + "'");
    return nullptr;
  }
  if (probs.type != "softmax") {
    source.error("inputs", "the second input must be a softmax layer; '" + probs.name + "' is of type '" +
                               probs.type + "'");
    return nullptr;
  }
  if (labels.classes > probs.shape.size()) {
    source.error("inputs", "the data has " + std::to_string(labels.classes) + " classes, but '" + probs.name +
                               "' has only " + std::to_string(probs.shape.size()) + " outputs");
    return nullptr;
  }
  if (p.topk > probs.shape.size()) {
    source.error("topk", "topk=" + std::to_string(p.topk) + " is more than the " +
                             std::to_string(probs.shape.size()) + " outputs of '" + probs.name + "'");
    return nullptr;
  }
  auto layer = std::make_shared<LogregLayer>();
  layer->output = {1, 1, 1, false};
  layer->classes = probs.shape.size();
  layer->topk = p.topk;
  layer->cost_values = 3;
  layer->cost_coeff = p.coeff;
  layer->backward_reads_input = true;
  return layer;
}

}  // namespace

LayerType logreg_type() {
  LayerType type;
  type.name = "cost.logreg";
  type.role = LayerRole::cost;
  type.doc =
      "Multinomial logistic cost of labels and softmax probabilities. Prints -log p, top-1 and top-k error.";
  type.formula =
      "-sum log p(label), log p floored at -50; ties among the top probabilities count fractionally";
  type.example =
      "[logprob]\ntype=cost.logreg\ninputs=labels,probs\n\n; parameter file\n[logprob]\ncoeff=1\ntopk=5";
  type.min_inputs = type.max_inputs = 2;
  type.params = {
      param("coeff", &LogregParams::coeff,
            {.doc = "weight of this cost in the gradient; 0 only reports it", .file = CfgFile::parameters}),
      param("topk", &LogregParams::topk,
            {.fallback = "1",
             .min = 1,
             .max = 1 << 20,
             .unit = "classes",
             .doc = "the third value counts labels outside the k most probable classes",
             .file = CfgFile::parameters})};
  type.create = create;
  return type;
}

}  // namespace convnet
