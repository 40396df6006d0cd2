// neuron: element-wise functions, as a layer or through `neuron=`.
#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "layers/layer.h"

namespace convnet {
namespace {

struct Known {
  NeuronKind kind;
  int parameters;  ///< numbers in brackets, all of them given
  const char* formula;
};
constexpr Known kKnown[] = {
    {NeuronKind::ident, 0, "x"},
    {NeuronKind::logistic, 0, "1/(1+exp(-x))"},
    {NeuronKind::abs, 0, "|x|"},
    {NeuronKind::relu, 0, "max(0,x)"},
    {NeuronKind::nrelu, 0, "max(0, x + noise of variance logistic(x)) in training, relu in tests"},
    {NeuronKind::softrelu, 0, "ln(1+exp(x))"},
    {NeuronKind::square, 0, "x^2"},
    {NeuronKind::sqrt, 0, "sqrt(x)"},
    {NeuronKind::log, 1, "ln(a+x)"},
    {NeuronKind::tanh, 2, "a*tanh(b*x)"},
    {NeuronKind::abstanh, 2, "a*|tanh(b*x)|"},
    {NeuronKind::brelu, 1, "min(a,max(0,x))"},
    {NeuronKind::linear, 2, "a*x+b"},
    {NeuronKind::drelu, 1, "x-a*tanh(x/a)"},
    {NeuronKind::leaky, 1, "x, a*x below 0"},
    {NeuronKind::elu, 1, "x, a*(exp(x)-1) below 0"},
    {NeuronKind::silu, 0, "x*logistic(x)"},
    {NeuronKind::gelu, 0, "x*P(X<x), X standard normal"},
    {NeuronKind::mish, 0, "x*tanh(ln(1+exp(x)))"},
    {NeuronKind::hsigmoid, 0, "min(1,max(0,x/6+1/2))"},
    {NeuronKind::hswish, 0, "x*min(1,max(0,x/6+1/2))"}};

const char* brackets(int parameters) { return parameters == 2 ? "[a,b]" : parameters == 1 ? "[a]" : ""; }

std::string formulas() {
  std::string all;
  for (const NeuronDoc& neuron : neuron_docs())
    all += (all.empty() ? "" : "; ") + neuron.usage + " " + neuron.formula;
  return all;
}

/// Says what is wrong with a function's parameters; "" if nothing is.
std::string wrong_parameters(const Neuron& f) {
  switch (f.kind) {
    case NeuronKind::tanh:
    case NeuronKind::abstanh: return f.a == 0 || f.b == 0 ? "expects numbers that are not 0" : "";
    case NeuronKind::drelu: return f.a == 0 ? "expects a number that is not 0" : "";
    case NeuronKind::brelu:
    case NeuronKind::leaky:
    case NeuronKind::elu: return f.a <= 0 ? "expects a number above 0" : "";
    default: return "";
  }
}

LayerFacts facts_of(const Neuron& f) {
  LayerFacts facts{.division = Division::as_inputs, .backward_in_place = true, .cheap = true};
  facts.neuron = f;
  if (f.kind == NeuronKind::logistic) facts.function = LayerFunction::logistic;
  if (f.kind == NeuronKind::ident) {
    facts.in_place = true;
  } else if (neuron_uses_output(f.kind)) {
    facts.in_place = true;
    facts.backward_reads = BackwardReads::output;
  } else {
    facts.backward_reads = BackwardReads::inputs;
  }
  return facts;
}

class NeuronLayer : public Layer {
 public:
  /// For a part of a layer `begin` is the index of its first element in the whole layer.
  NeuronLayer(const Neuron& function, const FeatureShape& shape, std::int64_t begin = 0)
      : Layer(shape, facts_of(function)), f(function), first(begin) {}

  void forward(Lowering& l) const override {
    const bool below_applies_it = l.microbatch().fused && facts.function == LayerFunction::other;
    if (f.kind == NeuronKind::ident || below_applies_it) return l.forward_unchanged();
    if (f.kind == NeuronKind::nrelu && l.microbatch().random) {
      l.run(NoisyRelu{output.dims(l.microbatch().images), l.microbatch().random_key,
                      l.microbatch().first_image, first},
            {l.input(0), l.output(), l.step()});
      return;
    }
    l.run(NeuronForward{f, output.dims(l.microbatch().images)}, {l.input(0), l.output()});
  }
  void backward(Lowering& l) const override {
    // The cost above differentiates a fused logistic, too; the layer below may differentiate another neuron.
    const bool done_elsewhere = l.microbatch().fused && (facts.function == LayerFunction::logistic ||
                                                         l.microbatch().input_differentiates);
    if (f.kind == NeuronKind::ident || done_elsewhere) return l.backward_unchanged();
    const Value kept = neuron_uses_output(f.kind) ? l.output() : l.input(0);
    l.run(NeuronBackward{f, output.dims(l.microbatch().images)},
          {kept, l.output_gradient(), l.input_gradient(0)});
  }
  std::shared_ptr<const Layer> part(std::int64_t begin, std::int64_t count) const override {
    return std::make_shared<NeuronLayer>(f, FeatureShape{count, 1, 1, false}, begin);
  }

 private:
  const Neuron f;
  const std::int64_t first;
};

struct NeuronParams {};

std::shared_ptr<const Layer> create_neuron(const LayerType& type, const LayerSource& source) {
  NeuronParams p;
  if (!parse_own_keys(type, source, p)) return nullptr;
  const IniValue* text = source.definition->find("neuron");
  if (text != nullptr && text->is_wrong) return nullptr;
  if (text == nullptr || text->text.empty()) {
    source.error("neuron", "'neuron' is missing; it is one of " + known_neurons());
    return nullptr;
  }
  try {
    const Neuron f = parse_neuron(text->text);
    return source.inputs_are_right ? make_neuron_layer(f, source.inputs[0].shape) : nullptr;
  } catch (const std::invalid_argument& wrong) {
    source.error("neuron", wrong.what());
    return nullptr;
  }
}

}  // namespace

std::vector<NeuronDoc> neuron_docs() {
  std::vector<NeuronDoc> docs;
  for (const Known& k : kKnown) {
    const std::string name = neuron_name(k.kind);
    docs.push_back({name, name + brackets(k.parameters), k.formula});
  }
  return docs;
}

std::string known_neurons() {
  std::vector<std::string> names;
  for (const NeuronDoc& neuron : neuron_docs()) names.push_back(neuron.usage);
  return join(names);
}

Neuron parse_neuron(const std::string& text) {
  const std::size_t bracket = text.find('[');
  std::string name = text.substr(0, text.find_first_of("[("));
  while (!name.empty() && (name.back() == ' ' || name.back() == '\t')) name.pop_back();
  std::vector<std::string> names;
  for (const Known& k : kKnown) {
    names.emplace_back(neuron_name(k.kind));
    if (name != names.back()) continue;
    const char* sample = k.kind == NeuronKind::leaky ? "[0.1]" : k.parameters == 2 ? "[1,1]" : "[1]";
    const std::string usage =
        fmt::format("neuron '{}' must be written {}", text,
                    k.parameters == 0 ? name : name + brackets(k.parameters) + ", like " + name + sample);
    std::vector<std::string> items;
    if (text.find('(') < bracket && text.find('(') != std::string::npos) throw std::invalid_argument(usage);
    if (bracket != std::string::npos) {
      if (text.back() != ']') throw std::invalid_argument(usage);
      items = split_list(text.substr(bracket + 1, text.size() - bracket - 2));
      if (items.empty()) throw std::invalid_argument(usage);
    }
    if (static_cast<int>(items.size()) != k.parameters) throw std::invalid_argument(usage);
    std::array<double, 2> values = {1, 1};
    std::string wrong;
    for (std::size_t i = 0; i < items.size() && wrong.empty(); ++i)
      wrong = parse_value(items[i], ParamSpec{}, values[i]);
    const Neuron f{k.kind, static_cast<float>(values[0]), static_cast<float>(values[1])};
    if (wrong.empty()) wrong = wrong_parameters(f);
    if (!wrong.empty()) throw std::invalid_argument("neuron '" + text + "' " + wrong);
    return f;
  }
  const std::string close = nearest(name, names);
  throw std::invalid_argument("unknown neuron '" + name + "'; " +
                              (close.empty() ? "" : "did you mean '" + close + "'? ") +
                              "known: " + known_neurons());
}

std::shared_ptr<const Layer> make_neuron_layer(const Neuron& f, const FeatureShape& input) {
  return std::make_shared<NeuronLayer>(f, input);
}

LayerType neuron_type() {
  LayerType type;
  type.name = "neuron";
  type.role = LayerRole::neuron;
  type.doc = "An element-wise function: " + known_neurons() + ". neuron= on another layer adds one after it.";
  type.formula = formulas();
  type.example = "[relu1]\ntype=neuron\ninputs=conv1\nneuron=relu";
  type.create = create_neuron;
  return type;
}

}  // namespace convnet
