#include "layers/weights.h"

#include <algorithm>
#include <cmath>

#include "convnet/base/printable.h"

namespace convnet {
namespace {

constexpr const char* kInitFunctions[] = {"makew", "makewcat", "makeb", "makebcat", "makeb_vec"};

bool is_init_function(const std::string& name) {
  return std::find(std::begin(kInitFunctions), std::end(kInitFunctions), name) != std::end(kInitFunctions);
}

/// "module.name(a,b)", or "module.name" without arguments; the module's name has no meaning here. False after
/// reporting what is wrong.
bool parse_init_function(const LayerSource& source, const std::string& key, const std::string& text,
                         InitFunction& out) {
  if (text.empty()) return true;
  const std::size_t open = std::min(text.find('('), text.size());
  const std::string path(trim(text.substr(0, open)));
  out.name = path.substr(path.rfind('.') + 1);
  const bool call = open < text.size();
  if (out.name.empty() || (call && text.back() != ')')) {
    source.error(key, key + " must be written function or function(arguments), not '" + text + "'");
    return false;
  }
  if (call) out.args = split_list(text.substr(open + 1, text.size() - open - 2));
  if (const IniValue* value = source.definition->find(key)) out.where = value->where;
  // A known function without parentheses gets its error when weights are made: nets that are only loaded may
  // have it.
  if (const std::string wrong = wrong_call(out); !wrong.empty() && (call || !is_init_function(out.name)))
    source.warning(
        key, key + "=" + text + ": " + wrong + "; the weights cannot be made from scratch, only loaded");
  return true;
}

/// Parses an entry of weightSource: "layer[index]", "layer" for index 0, or "" for own weights. Returns false
/// after reporting an error.
bool parse_weight_source(const LayerSource& source, const std::string& text, WeightSource& out) {
  if (text.empty()) return true;
  const std::size_t open = text.find('[');
  out.layer = text.substr(0, open);
  if (out.layer.empty()) {
    source.error("weightSource", "weightSource entry '" + text + "' names no layer; it is layer[index]");
    return false;
  }
  if (open == std::string::npos) return true;
  ParamSpec rules;
  rules.min = 0;
  rules.max = 1 << 20;
  std::string wrong = text.back() == ']'
                          ? parse_value(text.substr(open + 1, text.size() - open - 2), rules, out.index)
                          : "expects layer[index]";
  if (wrong.empty()) return true;
  source.error("weightSource", "weightSource entry '" + text + "': " + wrong);
  return false;
}

/// Returns the name of the matrix of input i: that of the input, or if an input before is the same one, with
/// the first of ".1", ".2", ... that makes a name of its own.
std::string matrix_name(const std::vector<LayerInput>& inputs, std::size_t i) {
  std::vector<std::string> names, taken;
  for (const LayerInput& input : inputs) taken.push_back(input.name);
  const auto among = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (std::size_t j = 0; j <= i; ++j) {
    std::string name = inputs[j].name;
    for (int n = 1; among(names, name) || (n > 1 && among(taken, name)); ++n)
      name = inputs[j].name + "." + std::to_string(n);
    names.push_back(name);
  }
  return names.back();
}

/// Returns the standard deviation of the initial values of a matrix, whose dims and output axis are filled
/// in. An input contributes only to the outputs of its group.
double deviation(const InitialDeviation& init, const WeightSpec& spec, std::int64_t groups) {
  const auto axis = static_cast<std::ptrdiff_t>(spec.output_axis);
  const auto inputs = static_cast<double>(element_count({spec.dims.begin() + axis + 1, spec.dims.end()}));
  const auto window = static_cast<double>(element_count({spec.dims.begin() + axis + 2, spec.dims.end()}));
  const std::int64_t outputs = spec.dims[static_cast<std::size_t>(axis)] / groups;
  return init.of(inputs, static_cast<double>(outputs) * window);
}

}  // namespace

/// AdamW divides by 1 - momentum^n, and mixes gradients in with the weight 1 - momentum, in fp32.
bool OptimizerParams::takes_momentum(const LayerSource& source, const char* key, double momentum) const {
  constexpr double kLargest = 0.9999999;  // as beta2
  if (optimizer != Optimizer::adamw || momentum <= kLargest) return true;
  source.error(key, std::string(key) + " is the beta1 of optimizer=adamw, which divides by 1 - " + key +
                        ": it must be at most 0.9999999; usual is 0.9");
  return false;
}

void OptimizerParams::warn_unused(const LayerSource& source) const {
  const bool adaptive = optimizer == Optimizer::adamw || optimizer == Optimizer::rmsprop;
  const IniValue* named = source.parameters == nullptr ? nullptr : source.parameters->find("optimizer");
  const std::string name = named == nullptr ? "sgd" : printable(named->text);
  const auto warn = [&](const char* key, bool used, const char* users) {
    if (!used && source.own_parameter(key) != nullptr)
      source.warning(key, std::string(key) + " has no effect with optimizer=" + name + "; " + users);
  };
  warn("beta2", adaptive, "adamw and rmsprop use it");
  warn("adamEpsilon", adaptive, "adamw and rmsprop use it");
  warn("trust", optimizer == Optimizer::lars, "lars uses it");
}

double InitialDeviation::of(double fan_in, double fan_out) const {
  switch (rule) {
    case Rule::he: return std::sqrt(2 / fan_in);
    case Rule::xavier: return std::sqrt(2 / (fan_in + fan_out));
    default: return number;
  }
}

std::string parse_value(const std::string& text, const ParamSpec& spec, InitialDeviation& out) {
  if (text == "he") out.rule = InitialDeviation::Rule::he;
  if (text == "xavier") out.rule = InitialDeviation::Rule::xavier;
  if (out.rule != InitialDeviation::Rule::number) return "";
  const std::string wrong = parse_value(text, spec, out.number);
  return wrong.empty() || to_number<double>(text) ? wrong : wrong + ", or he or xavier";
}

std::string wrong_call(const InitFunction& f) {
  if (!is_init_function(f.name))
    return "there is no function '" + f.name +
           "' here (known: " + join({std::begin(kInitFunctions), std::end(kInitFunctions)}) + ")";
  if (f.name == "makeb_vec") {
    for (const std::string& item : f.args) {
      double value = 0;
      if (std::string wrong = parse_value(item, ParamSpec{}, value); !wrong.empty())
        return "'" + item + "' " + wrong;
    }
    return "";
  }
  if (f.args.empty()) return f.name + " needs the name of a checkpoint";
  const bool several = f.name.ends_with("cat");
  if (several == (f.args.size() > 1)) return "";
  return f.name + (several ? " needs a checkpoint and layers" : " takes a checkpoint alone");
}

bool parse_weight_params(const LayerType& type, const LayerSource& source, WeightParams& params,
                         void* object) {
  if (!parse_into(type, source, object)) return false;
  for (const char* key : {"superEps", "superMom"}) {
    if (source.parameters != nullptr && source.parameters->find(key) != nullptr)
      source.warning(key, std::string(key) + " never had an effect and is ignored");
  }
  params.warn_unused(source);
  bool good = params.takes_momentum(source, "momB", params.mom_b);
  for (const double momentum : params.mom_w) good = good && params.takes_momentum(source, "momW", momentum);
  good = parse_init_function(source, "initWFunc", params.init_w_func, params.init_w_call) && good;
  if (params.biases)
    good = parse_init_function(source, "initBFunc", params.init_b_func, params.init_b_call) && good;
  const std::size_t inputs = source.inputs.size();
  params.weight_sources.resize(params.weight_source.empty() ? inputs : params.weight_source.size());
  if (inputs > 0 && params.weight_sources.size() != inputs) {
    source.error("weightSource", "weightSource has " + std::to_string(params.weight_source.size()) +
                                     " entries for " + std::to_string(inputs) +
                                     (inputs == 1 ? " input" : " inputs") +
                                     "; give one per input, empty for own weights");
    return false;
  }
  for (std::size_t i = 0; i < params.weight_source.size(); ++i)
    good = parse_weight_source(source, params.weight_source[i], params.weight_sources[i]) && good;
  return good;
}

WeightConstraint rows_of(const Dims& dims) {
  WeightConstraint rows;
  rows.groups = dims[0];
  rows.inner = element_count(dims) / std::max<std::int64_t>(dims[0], 1);
  return rows;
}

void add_weights(std::vector<WeightSpec>& weights, const LayerSource& source, const WeightParams& params,
                 std::size_t i, Dims dims, WeightConstraint constraint, int output_axis,
                 std::int64_t groups) {
  WeightSpec spec;
  spec.output_axis = output_axis;
  spec.name = "weights." + matrix_name(source.inputs, i);
  spec.dims = std::move(dims);
  spec.init_stdev = deviation(params.init_w[i], spec, groups);
  spec.learning = params.weights(params.eps_w[i], params.mom_w[i], params.wc[i]);
  spec.constraint = constraint;
  spec.constraint.ball = params.wball[i];
  spec.init = params.init_w_call;
  spec.source_layer = params.weight_sources[i].layer;
  spec.source_index = params.weight_sources[i].index;
  weights.push_back(std::move(spec));
}

void add_biases(std::vector<WeightSpec>& weights, const WeightParams& params, Dims dims, int output_axis) {
  if (!params.biases) return;
  WeightSpec spec;
  spec.output_axis = output_axis;
  spec.name = "biases";
  spec.dims = std::move(dims);
  spec.init_value = params.init_b;
  spec.learning = params.vector(params.eps_b, params.mom_b);
  spec.init = params.init_b_call;
  weights.push_back(std::move(spec));
}

}  // namespace convnet
