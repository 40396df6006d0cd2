// neuron: element-wise functions, as a layer or through `neuron=`.
#include <fmt/format.h>

#include <stdexcept>

#include "layers/layer.h"

namespace convnet {
namespace {

struct Known {
  const char* name;
  NeuronKind kind;
  int parameters;  ///< numbers in brackets, all or none of them given
};
constexpr Known kKnown[] = {{"ident", NeuronKind::ident, 0},
                            {"relu", NeuronKind::relu, 0},
                            {"logistic", NeuronKind::logistic, 0},
                            {"tanh", NeuronKind::tanh, 2}};

std::string known_neurons() {
  std::vector<std::string> names;
  for (const Known& k : kKnown) names.push_back(std::string(k.name) + (k.parameters == 2 ? "[a,b]" : ""));
  return join(names);
}

class NeuronLayer : public Layer {
 public:
  Neuron f;

  void forward(Lowering& l) const override {
    if (l.fused() || f.kind == NeuronKind::ident) return l.forward_unchanged();
    l.run(NeuronForward{f, output.dims(l.images())}, {l.input(0), l.output()});
  }
  void backward(Lowering& l) const override {
    if (f.kind == NeuronKind::ident) return l.backward_unchanged();
    const Value kept = neuron_uses_output(f.kind) ? l.output() : l.input(0);
    l.run(NeuronBackward{f, output.dims(l.images())}, {kept, l.output_gradient(), l.input_gradient(0)});
  }
};

struct NeuronParams {};

std::shared_ptr<const Layer> create(const LayerType& type, const LayerSource& source) {
  NeuronParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const IniValue* text = source.definition->find("neuron");
  if (text == nullptr) {
    source.error("neuron", "'neuron' is missing; it is one of " + known_neurons());
    return nullptr;
  }
  try {
    return make_neuron_layer(parse_neuron(text->text), source.inputs[0].shape);
  } catch (const std::invalid_argument& wrong) {
    source.error("neuron", wrong.what());
    return nullptr;
  }
}

}  // namespace

Neuron parse_neuron(const std::string& text) {
  const std::size_t bracket = text.find('[');
  std::string name = text.substr(0, bracket);
  while (!name.empty() && (name.back() == ' ' || name.back() == '\t')) name.pop_back();
  std::vector<std::string> names;
  for (const Known& k : kKnown) {
    names.emplace_back(k.name);
    if (name != k.name) continue;
    Neuron f{k.kind, 1, 1};
    const std::string usage = fmt::format("neuron '{}' must be written {}", text,
                                          k.parameters == 0 ? name : name + "[a,b], like " + name + "[1,1]");
    if (bracket == std::string::npos) {
      if (k.parameters != 0) throw std::invalid_argument(usage);
      return f;
    }
    if (text.back() != ']') throw std::invalid_argument(usage);
    const std::vector<std::string> items = split_list(text.substr(bracket + 1, text.size() - bracket - 2));
    if (k.parameters == 0 || static_cast<int>(items.size()) != k.parameters)
      throw std::invalid_argument(usage);
    ParamSpec any;
    double a = 0;
    double b = 0;
    std::string wrong = parse_value(items[0], any, a);
    if (wrong.empty()) wrong = parse_value(items[1], any, b);
    if (wrong.empty() && (a == 0 || b == 0)) wrong = "expects numbers that are not 0";
    if (!wrong.empty()) throw std::invalid_argument("neuron '" + text + "' " + wrong);
    f.a = static_cast<float>(a);
    f.b = static_cast<float>(b);
    return f;
  }
  const std::string close = nearest(name, names);
  throw std::invalid_argument("unknown neuron '" + name + "'; " +
                              (close.empty() ? "" : "did you mean '" + close + "'? ") +
                              "known: " + known_neurons());
}

std::string to_string(const Neuron& f) {
  for (const Known& k : kKnown) {
    if (k.kind == f.kind) return k.parameters == 0 ? k.name : fmt::format("{}[{},{}]", k.name, f.a, f.b);
  }
  return "";
}

std::shared_ptr<const Layer> make_neuron_layer(const Neuron& f, const FeatureShape& input) {
  auto layer = std::make_shared<NeuronLayer>();
  layer->f = f;
  layer->output = input;
  const bool ident = f.kind == NeuronKind::ident;
  layer->in_place = ident || neuron_uses_output(f.kind);
  layer->backward_reads_output = !ident && neuron_uses_output(f.kind);
  layer->backward_reads_input = !ident && !neuron_uses_output(f.kind);
  layer->backward_in_place = true;
  layer->relu = f.kind == NeuronKind::relu;
  return layer;
}

LayerType neuron_type() {
  LayerType type;
  type.name = "neuron";
  type.role = LayerRole::neuron;
  type.doc = "An element-wise function: " + known_neurons() + ". neuron= on another layer adds one after it.";
  type.formula = "ident x; relu max(0,x); logistic 1/(1+exp(-x)); tanh[a,b] a*tanh(b*x)";
  type.example = "[relu1]\ntype=neuron\ninputs=conv1\nneuron=relu";
  type.create = create;
  return type;
}

}  // namespace convnet
