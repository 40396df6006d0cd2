// cost.logreg, cost.crossent, cost.bce, cost.dce, cost.sum2.
#include <algorithm>

#include "convnet/base/names.h"
#include "convnet/base/printable.h"
#include "layers/layer.h"

namespace convnet {
namespace {

/// The weights of classes in cost.logreg.
struct ClassWeights {
  std::vector<double> numbers;  ///< by class; empty: all are 1, or "balanced" before training measures them
};

/// Parses a list of numbers, "balanced", or what training makes of that, "balanced[1.5,0.75]".
std::string parse_value(const std::string& text, const ParamSpec& spec, ClassWeights& out) {
  constexpr std::string_view kBalanced = "balanced";
  std::string_view numbers = text;
  if (numbers == kBalanced) return "";
  if (numbers.starts_with(kBalanced) && numbers.substr(kBalanced.size()).starts_with('[') &&
      numbers.ends_with(']'))
    numbers = numbers.substr(kBalanced.size() + 1, numbers.size() - kBalanced.size() - 2);
  for (const std::string& item : split_list(numbers)) {
    const std::string wrong = parse_value(item, spec, out.numbers.emplace_back());
    if (!wrong.empty()) return to_number<double>(item) ? wrong : wrong + ", or balanced";
  }
  return "";
}

}  // namespace

template <>
struct detail::TypeName<ClassWeights> {
  static constexpr const char* value = "numbers or balanced";
};

namespace {

struct CostParams {
  double coeff = 1, pos_weight = 1;
  int topk = 1;
  double smoothing = 0;
  ClassWeights class_weights;
  std::vector<std::string> children;
};

ParamSpec coeff_spec() {
  return param("coeff", &CostParams::coeff,
               {.fallback = "1",
                .doc = "weight of this cost in the gradient; 0 only reports it",
                .file = CfgFile::parameters});
}
ParamSpec children_spec() {
  return param(
      "children", &CostParams::children,
      {.fallback = "",
       .doc = "costs of the same type whose values are added to this one's and not printed themselves"});
}
ParamSpec pos_weight_spec() {
  return param("posWeight", &CostParams::pos_weight,
               {.fallback = "1",
                .min = 0,
                .doc = "factor of the terms of positive labels",
                .file = CfgFile::parameters});
}

/// A cost. Its backward reads its inputs; it has no output that a layer could read.
class CostLayer : public Layer {
 public:
  explicit CostLayer(CostFacts cost_facts)
      : Layer({1, 1, 1, false}, {.backward_reads = BackwardReads::inputs, .cost = std::move(cost_facts)}) {}

 protected:
  float coeff() const { return static_cast<float>(facts.cost->coeff); }
};

class LogregLayer : public CostLayer {
 public:
  LogregLayer(const CostParams& p, std::int64_t outputs, bool mixed)
      : CostLayer({3, p.coeff, p.children, CostLabels::classes, LayerFunction::softmax}),
        classes(outputs),
        topk(p.topk),
        targets{static_cast<float>(p.smoothing),
                mixed,
                {p.class_weights.numbers.begin(), p.class_weights.numbers.end()}} {}

  void forward(Lowering& l) const override {
    // Tests report the plain cost, so that it compares with that of other runs.
    ClassTargets these = l.microbatch().training ? targets : ClassTargets{.mixed = targets.mixed};
    l.run(LogregForward{l.microbatch().images, classes, topk, l.cost_slot(), std::move(these)},
          {l.input(0), l.input(1), l.costs()});
  }
  void backward(Lowering& l) const override {
    const std::vector<Value> args = {l.input(0), l.input(1), l.input_gradient(1)};
    if (l.microbatch().fused) {
      l.run(SoftmaxLogregBackward{l.microbatch().images, classes, coeff(), targets}, args);
    } else {
      l.run(LogregBackward{l.microbatch().images, classes, coeff(), targets}, args);
    }
  }
  std::vector<std::string> cost_names() const override {
    return {"-log p", "top-1 error", "top-" + std::to_string(topk) + " error"};
  }

 private:
  const std::int64_t classes;
  const int topk;
  const ClassTargets targets;
};

/// Checks that the second input is a softmax.
bool reads_softmax(const LayerSource& source) {
  const LayerInput& probs = source.inputs[1];
  if (probs.function == LayerFunction::softmax) return true;
  source.error("inputs", "the second input must be a softmax layer; '" + probs.name + "' is of type '" +
                             probs.type + "'");
  return false;
}

/// Returns the end of a message, with the first names of classes; "" if they have none.
std::string classes_text(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 10;
  if (names.empty()) return "";
  std::vector<std::string> first;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) first.push_back(printable(names[i]));
  return "; the classes are " + join(first) + (names.size() > kMost ? ", …" : "");
}

/// Returns what is wrong with labels that are not classes.
std::string why_not_classes(const LayerInput& labels) {
  if (!labels.matrix || *labels.matrix == 0 || labels.shape.image)
    return "the first input must be labels, a data layer with dataIdx=1; '" + labels.name + "' is of type '" +
           labels.type + "'";
  if (*labels.matrix > 1)
    return "needs classes, a data layer with dataIdx=1, but '" + labels.name +
           "' holds a number for each class or tag (dataIdx=" + std::to_string(*labels.matrix) +
           "), which cost.bce and cost.crossent read";
  return "needs classes, but '" + labels.name +
         "' holds numbers, for a regression; a net for numbers ends in cost.sum2 of the difference "
         "(docs/data.md, Several tags, or numbers), and nets that come with convnet (--layer-def resnet18) "
         "get such an end by themselves";
}

std::shared_ptr<const Layer> create_logreg(const LayerType& type, const LayerSource& source) {
  CostParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const LayerInput& labels = source.inputs[0];
  const LayerInput& probs = source.inputs[1];
  if (labels.classes == 0) {
    source.error("inputs", why_not_classes(labels));
    return nullptr;
  }
  if (!reads_softmax(source)) return nullptr;
  if (labels.classes > probs.shape.size()) {
    source.error("inputs", "the data has " + std::to_string(labels.classes) + " classes, but '" + probs.name +
                               "' has only " + std::to_string(probs.shape.size()) + " outputs" +
                               classes_text(labels.class_names));
    return nullptr;
  }
  if (p.topk > probs.shape.size()) {
    const auto most = static_cast<int>(probs.shape.size());
    source.warning("topk", "topk=" + std::to_string(p.topk) + " is lowered to the " + std::to_string(most) +
                               " outputs of '" + probs.name + "'");
    p.topk = most;
  }
  const auto weights = std::ssize(p.class_weights.numbers);
  if (weights > 0 && weights != probs.shape.size()) {
    source.error("classWeights", "classWeights has " + std::to_string(weights) + " weights, but '" +
                                     probs.name + "' has " + std::to_string(probs.shape.size()) + " classes");
    return nullptr;
  }
  if (probs.shape.size() == 1)
    source.warning("inputs", "the data has one class, and '" + probs.name +
                                 "' one output, whose probability is always 1: there is nothing to learn");
  if (labels.classes < probs.shape.size())
    source.warning("inputs", "'" + probs.name + "' has " + std::to_string(probs.shape.size()) +
                                 " outputs, but the data has only " + std::to_string(labels.classes) +
                                 " classes: no image belongs to the others");
  return std::make_shared<LogregLayer>(p, probs.shape.size(), labels.shape.size() == kMixedLabelValues);
}

/// Checks that the first input has a number for every output of the second, and no integer labels.
bool labels_match(const LayerSource& source) {
  const LayerInput& labels = source.inputs[0];
  const LayerInput& probs = source.inputs[1];
  if (labels.classes > 0) {
    source.error("inputs", "the first input must hold a number for every output of '" + probs.name + "'; '" +
                               labels.name + "' holds class labels, which are for cost.logreg");
    return false;
  }
  if (labels.shape.size() == probs.shape.size()) return true;
  source.error("inputs", "'" + labels.name + "' has " + std::to_string(labels.shape.size()) +
                             " labels an image, but '" + probs.name + "' has " +
                             std::to_string(probs.shape.size()) + " outputs");
  return false;
}

class CrossentLayer : public CostLayer {
 public:
  CrossentLayer(const CostParams& p, std::int64_t outputs)
      : CostLayer({2, p.coeff, p.children, CostLabels::numbers, LayerFunction::softmax}), classes(outputs) {}

  void forward(Lowering& l) const override {
    l.run(CrossentForward{l.microbatch().images, classes, l.cost_slot()},
          {l.input(0), l.input(1), l.costs()});
  }
  void backward(Lowering& l) const override {
    const std::vector<Value> args = {l.input(0), l.input(1), l.input_gradient(1)};
    if (l.microbatch().fused) {
      l.run(SoftmaxCrossentBackward{l.microbatch().images, classes, coeff()}, args);
    } else {
      l.run(CrossentBackward{l.microbatch().images, classes, coeff()}, args);
    }
  }
  std::vector<std::string> cost_names() const override { return {"cross entropy", "top-1 error"}; }

 private:
  const std::int64_t classes;
};

std::shared_ptr<const Layer> create_crossent(const LayerType& type, const LayerSource& source) {
  CostParams p;
  if (!parse_params(type, source, p)) return nullptr;
  if (!reads_softmax(source) || !labels_match(source)) return nullptr;
  return std::make_shared<CrossentLayer>(p, source.inputs[1].shape.size());
}

/// cost.bce.
class BinaryCostLayer : public CostLayer {
 public:
  BinaryCostLayer(const CostParams& p, std::int64_t outputs_below) : BinaryCostLayer(p, outputs_below, 3) {}

  void forward(Lowering& l) const override {
    const std::int64_t images = l.microbatch().images, views = l.microbatch().views;
    Value probabilities = l.input(1);
    if (views > 1) {
      const Value mean = l.kept("mean of views", {images, outputs}, DataType::f32);
      l.run(AverageViews{images, outputs, views}, {probabilities, mean});
      probabilities = mean;
    }
    l.run(BinaryCostForward{images, outputs, l.cost_slot(), pos_weight, reports_classes()},
          {l.input(0), probabilities, l.costs()});
  }
  void backward(Lowering& l) const override {
    const std::vector<Value> args = {l.input(0), l.input(1), l.input_gradient(1)};
    if (l.microbatch().fused) {
      l.run(LogisticBinaryCostBackward{l.microbatch().images, outputs, coeff(), pos_weight}, args);
    } else {
      l.run(BinaryCostBackward{l.microbatch().images, outputs, coeff(), pos_weight}, args);
    }
  }

  /// Reports the cross entropy alone where the cost has children.
  std::vector<double> cost_report(std::span<const double> sums, double images) const override {
    return Layer::cost_report(facts.cost->children.empty() ? sums : sums.first(1), images);
  }
  std::vector<std::string> cost_names() const override {
    if (!facts.cost->children.empty()) return {"cross entropy"};
    return {"cross entropy", "outputs wrong", "top-1 error"};
  }

 protected:
  BinaryCostLayer(const CostParams& p, std::int64_t outputs_below, int values)
      : CostLayer({values, p.coeff, p.children, CostLabels::numbers, LayerFunction::logistic}),
        outputs(outputs_below),
        pos_weight(static_cast<float>(p.pos_weight)) {}

  /// Returns whether forward counts, for every class, the images that make up precision and recall.
  virtual bool reports_classes() const { return false; }

  const std::int64_t outputs;
  const float pos_weight;
};

/// cost.dce: cost.bce with a report on every class.
class DetectionCostLayer : public BinaryCostLayer {
 public:
  DetectionCostLayer(const CostParams& p, std::int64_t outputs_below)
      : BinaryCostLayer(p, outputs_below, static_cast<int>(2 + 3 * outputs_below)) {}

  /// Returns two means over the images, then the precision and recall of every class, which are 0 if they
  /// would be divided by 0.
  std::vector<double> cost_report(std::span<const double> sums, double images) const override {
    std::vector<double> values = {sums[0] / images, sums[1] / images};
    for (std::size_t i = 2; i + 2 < sums.size(); i += 3) {
      values.push_back(sums[i + 1] > 0 ? sums[i] / sums[i + 1] : 0);
      values.push_back(sums[i + 2] > 0 ? sums[i] / sums[i + 2] : 0);
    }
    return values;
  }
  std::vector<std::string> cost_names() const override {
    std::vector<std::string> names = {"cross entropy", "outputs wrong"};
    for (std::int64_t i = 0; i < outputs; ++i) {
      names.push_back("precision of output " + std::to_string(i));
      names.push_back("recall of output " + std::to_string(i));
    }
    return names;
  }

 protected:
  bool reports_classes() const override { return true; }
};

std::shared_ptr<const Layer> create_bce(const LayerType& type, const LayerSource& source) {
  CostParams p;
  if (!parse_params(type, source, p)) return nullptr;
  if (!labels_match(source)) return nullptr;
  return std::make_shared<BinaryCostLayer>(p, source.inputs[1].shape.size());
}

std::shared_ptr<const Layer> create_dce(const LayerType& type, const LayerSource& source) {
  CostParams p;
  if (!parse_params(type, source, p)) return nullptr;
  if (!labels_match(source)) return nullptr;
  const std::int64_t outputs = source.inputs[1].shape.size();
  if (outputs > 1 << 20) {
    source.error("inputs", "cost.dce reports on every class, of at most 1048576; '" + source.inputs[1].name +
                               "' has " + std::to_string(outputs) + " outputs");
    return nullptr;
  }
  return std::make_shared<DetectionCostLayer>(p, outputs);
}

class SquaresLayer : public CostLayer {
 public:
  SquaresLayer(const CostParams& p, const FeatureShape& input)
      : CostLayer({1, p.coeff, p.children, CostLabels::none, LayerFunction::other}), in(input) {}

  void forward(Lowering& l) const override {
    l.run(SquaresForward{in.dims(l.microbatch().images), l.cost_slot()}, {l.input(0), l.costs()});
  }
  void backward(Lowering& l) const override {
    l.run(SquaresBackward{in.dims(l.microbatch().images), coeff()}, {l.input(0), l.input_gradient(0)});
  }
  std::vector<std::string> cost_names() const override { return {"sum of squares"}; }

 private:
  const FeatureShape in;
};

std::shared_ptr<const Layer> create_sum2(const LayerType& type, const LayerSource& source) {
  CostParams p;
  if (!parse_params(type, source, p)) return nullptr;
  return std::make_shared<SquaresLayer>(p, source.inputs[0].shape);
}

LayerType cost_type(const std::string& name, int inputs) {
  LayerType type;
  type.name = name;
  type.role = LayerRole::cost;
  type.min_inputs = type.max_inputs = inputs;
  type.params = {coeff_spec()};
  return type;
}

}  // namespace

LayerType logreg_type() {
  LayerType type = cost_type("cost.logreg", 2);
  type.doc =
      "Multinomial logistic cost of labels and softmax probabilities. Prints -log p, top-1 and top-k error.";
  type.formula =
      "-sum w(label) t log p, log p floored at -50, t = (1-smoothing)*[label] "
      "+ smoothing/classes; ties among the top probabilities count fractionally";
  type.example =
      "[logprob]\ntype=cost.logreg\ninputs=labels,probs\n\n; parameter file\n[logprob]\ncoeff=1\ntopk=5";
  type.params.push_back(param("topk", &CostParams::topk,
                              {.fallback = "1",
                               .min = 1,
                               .max = 1 << 20,
                               .unit = "classes",
                               .doc = "the third value counts labels outside the k most probable classes",
                               .file = CfgFile::parameters}));
  type.params.push_back(param("smoothing", &CostParams::smoothing,
                              {.fallback = "0",
                               .min = 0,
                               .max = 1,
                               .doc = "training: this part of each label is spread over all classes",
                               .file = CfgFile::parameters}));
  type.params.push_back(
      param("classWeights", &CostParams::class_weights,
            {.fallback = "",
             .min = 0,
             .doc = "training: the weight of each class in cost and gradient, which stay "
                    "sums over images; empty: all are 1. balanced: images / (classes * images of the "
                    "class), from the labels of the training range. A mixed image has the mean of its "
                    "two classes' weights, by their shares",
             .file = CfgFile::parameters}));
  type.params.push_back(children_spec());
  type.create = create_logreg;
  return type;
}

LayerType crossent_type() {
  LayerType type = cost_type("cost.crossent", 2);
  type.doc =
      "Cross entropy of one-hot (or soft) labels and softmax probabilities. Prints it and the top-1 error.";
  type.formula = "-sum t log p, log p floored at -50";
  type.example = "[ce]\ntype=cost.crossent\ninputs=onehot,probs\n\n; parameter file\n[ce]\ncoeff=1";
  type.params.push_back(children_spec());
  type.create = create_crossent;
  return type;
}

LayerType bce_type() {
  LayerType type = cost_type("cost.bce", 2);
  type.doc =
      "Binary cross entropy of labels in [0,1] and logistic outputs. Prints it, the fraction "
      "of outputs on the wrong side of 0.5, and the top-1 error; with children only the first. A "
      "logistic output of an input above 17 rounds to p = 1, so it costs 50 if t = 0; gradients are "
      "not affected.";
  type.formula = "-sum (posWeight t log p + (1-t) log(1-p)), logs floored at -50";
  type.example = "[bce]\ntype=cost.bce\ninputs=tags,fc10\n\n; parameter file\n[bce]\ncoeff=1";
  type.params.push_back(pos_weight_spec());
  type.params.push_back(children_spec());
  type.create = create_bce;
  return type;
}

LayerType dce_type() {
  LayerType type = cost_type("cost.dce", 2);
  type.doc =
      "Detection cross entropy: as cost.bce, and prints the cross entropy, "
      "the fraction wrong, then precision and recall of every class.";
  type.formula = "-sum (posWeight t log p + (1-t) log(1-p)), logs floored at -50";
  type.example = "[dce]\ntype=cost.dce\ninputs=tags,fc10\n\n; parameter file\n[dce]\ncoeff=1";
  type.params.push_back(pos_weight_spec());
  type.create = create_dce;
  return type;
}

LayerType sum2_type() {
  LayerType type = cost_type("cost.sum2", 1);
  type.doc = "Sum of squares.";
  type.formula = "sum x^2";
  type.example = "[l2]\ntype=cost.sum2\ninputs=fc1\n\n; parameter file\n[l2]\ncoeff=0.01";
  type.params.push_back(children_spec());
  type.create = create_sum2;
  return type;
}

}  // namespace convnet
