#include "layers/layer.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace convnet {

std::string FeatureShape::str() const { return to_string(image ? Dims{c, h, w} : Dims{c}); }

namespace {
SourceLocation place_of(const LayerSource& source, std::string_view key) {
  for (const IniSection* section : {source.definition, source.parameters}) {
    if (section == nullptr) continue;
    if (const IniValue* value = section->find(key)) return value->where;
  }
  return source.definition->where;
}
}  // namespace

const IniValue* LayerSource::own_parameter(const std::string& key) const {
  const IniValue* value = parameters == nullptr ? nullptr : parameters->find(key);
  return value == nullptr || value->from_default ? nullptr : value;
}

void LayerSource::error(std::string_view key, const std::string& message) const {
  diagnostics->error(place_of(*this, key), "layer '" + name + "': " + message);
}

void LayerSource::warning(std::string_view key, const std::string& message) const {
  diagnostics->warning(place_of(*this, key), "layer '" + name + "': " + message);
}

Layer::Layer(FeatureShape output_shape, LayerFacts layer_facts, std::vector<WeightSpec> matrices,
             int passes_per_update)
    : output(output_shape),
      facts(std::move(layer_facts)),
      weights(std::move(matrices)),
      update_period(passes_per_update) {
  check_facts(facts, !weights.empty());
}

std::size_t Layer::input_weights() const {
  return static_cast<std::size_t>(std::count_if(
      weights.begin(), weights.end(), [](const WeightSpec& w) { return w.name.starts_with("weights."); }));
}

std::vector<double> Layer::cost_report(std::span<const double> sums, double images) const {
  std::vector<double> values;
  for (double sum : sums) values.push_back(sum / images);
  return values;
}

namespace {

/// Returns the end of a message for data of `channels` channels whose last dimension, not the first, looks
/// like them; "" for other inputs.
std::string channels_last_hint(const LayerInput& in, std::int64_t channels) {
  const auto may_be_channels = [](std::int64_t count) { return count == 1 || count == 3 || count == 4; };
  if (in.type != "data" || in.shape.w != channels || !may_be_channels(in.shape.w) ||
      may_be_channels(in.shape.c))
    return "";
  return "; an array of (N,H,W,C) is saved as (N,C,H,W) by images.transpose(0, 3, 1, 2)";
}

}  // namespace

std::optional<FeatureShape> as_maps(const LayerSource& source, std::size_t input, std::int64_t channels,
                                    std::string_view key) {
  const LayerInput& in = source.inputs[input];
  if (in.shape.image) {
    if (channels == 0 || in.shape.c == channels) return in.shape;
    source.error(key, std::string(key) + "=" + std::to_string(channels) + ", but input '" + in.name +
                          "' is " + in.shape.str() + " and has " + std::to_string(in.shape.c) +
                          (in.shape.c == 1 ? " channel" : " channels") + channels_last_hint(in, channels));
    return std::nullopt;
  }
  if (channels == 0) {
    source.error(key, "needs " + std::string(key) + "=, because input '" + in.name + "' is a vector of " +
                          std::to_string(in.shape.c) + " numbers" +
                          (in.flat_because.empty() ? "" : ": " + in.flat_because));
    return std::nullopt;
  }
  if (in.shape.c % channels == 0) {
    const std::int64_t pixels = in.shape.c / channels;
    const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(pixels))));
    if (side * side == pixels) return FeatureShape{channels, side, side, true};
  }
  const std::string given =
      key == "inputs" ? "" : std::string(key) + "=" + std::to_string(channels) + ", but ";
  source.error(key, given + "input '" + in.name + "' is a vector of " + std::to_string(in.shape.c) +
                        " numbers, which is not " + std::to_string(channels) + " square maps" +
                        (in.flat_because.empty() ? "" : ": " + in.flat_because));
  return std::nullopt;
}

std::optional<std::int64_t> OutputCount::of(const LayerSource& source, std::string_view key) const {
  if (number > 0) return number;
  for (const SourceMatrix& matrix : source.matrices)
    if (matrix.classes > 0) return matrix.classes;
  if (source.matrices.size() > 1) return source.matrices[1].shape.size();
  source.error(key, std::string(key) + "=classes, but the data has no labels; give a number");
  return std::nullopt;
}

std::string parse_value(const std::string& text, const ParamSpec& spec, OutputCount& out) {
  out.number = 0;
  if (text == "classes") return "";
  int number = 0;
  if (std::string wrong = parse_value(text, spec, number); !wrong.empty())
    return wrong.insert(std::min(wrong.find(", not "), wrong.size()), " or classes");
  out.number = number;
  return "";
}

const std::vector<ParamSpec>& common_params() {
  // The graph builder handles these keys. They are declared here for help, documentation and the check for
  // unknown keys.
  const auto described = [](std::string key, std::string type, std::string doc, CfgFile file) {
    ParamInfo info;
    info.fallback = "";
    info.doc = std::move(doc);
    info.file = file;
    return base_spec(std::move(key), std::move(type), std::move(info));
  };
  static const std::vector<ParamSpec> params = {
      described("type", "name", "the layer's type; required", CfgFile::definition),
      described("inputs", "names", "the layers it reads, defined above it; required but for data layers",
                CfgFile::definition),
      described("neuron", "name", "an element-wise function applied to the output", CfgFile::definition),
      described("dropout", "number",
                "probability of dropping an output in training, before the neuron; tests scale outputs by "
                "1 - dropout (as layer type dropout2)",
                CfgFile::both),
      described(
          "gpu", "integers",
          "indices into --gpu, like 0,1 or 0-3: one replica of the layer on each; default: those of its "
          "first input that is not a data layer, else 0",
          CfgFile::definition)};
  return params;
}

const ForeignKeys& foreign_keys() {
  static const ForeignKeys keys = [] {
    constexpr std::size_t kMostTypes = 5;
    std::map<std::string, std::vector<std::string>> types;
    for (const LayerType& type : layer_types()) {
      for (const ParamSpec& spec : type.params) {
        types[lower(spec.key)].push_back(type.name);
        for (const std::string& alias : spec.aliases) types[lower(alias)].push_back(type.name);
      }
    }
    ForeignKeys all = {{"initcfunc", "it makes the connections of randSparse, which is not supported"}};
    for (auto& [key, names] : types) {
      const std::size_t more = names.size() - std::min(names.size(), kMostTypes);
      names.resize(names.size() - more);
      all[key] = "it belongs to layers of type " + join(names) +
                 (more > 0 ? " and " + std::to_string(more) + " more" : "");
    }
    return all;
  }();
  return keys;
}

std::vector<ParamSpec> params_of(const LayerType& type, const IniSection& definition) {
  std::vector<ParamSpec> specs = type.params;
  bool biases = true;
  for (const ParamSpec& spec : type.params) {
    const IniValue* value = spec.key == "biases" ? definition.find(spec.key) : nullptr;
    if (value != nullptr) parse_value(value->text, spec, biases);
  }
  for (ParamSpec& spec : specs) {
    if (!biases && (spec.key == "epsB" || spec.key == "momB")) spec.fallback = "0";
  }
  return specs;
}

bool parse_into(const LayerType& type, const LayerSource& source, void* params) {
  const std::vector<ParamSpec> specs = params_of(type, *source.definition);
  const bool good =
      assign_params(specs, {common_params(), foreign_keys()}, source.name, *source.definition,
                    source.parameters, source.inputs.size(), source.strict, params, *source.diagnostics);
  // The graph builder reports layers without a section that lack keys.
  return good && missing_keys(specs, source.parameters).empty();
}

}  // namespace convnet
