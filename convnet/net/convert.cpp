#include "convnet/net/convert.h"

#include <algorithm>

#include "convnet/config/ini_edit.h"
#include "convnet/graph/whole_layers.h"
#include "convnet/net/net_weights.h"

namespace convnet {
namespace {

/// The section of a layer that `option` lists; null after reporting that there is none.
const IniSection* find_layer(const IniFile& definition, const std::string& option, const std::string& name,
                             Diagnostics& diagnostics) {
  if (const IniSection* section = definition.find(name)) return section;
  std::vector<std::string> names;
  for (const IniSection& s : definition.sections) names.push_back(s.name);
  diagnostics.error({}, "--" + option + ": there is no layer '" + name + "'" + did_you_mean(name, names));
  return nullptr;
}

bool is_conv(const IniSection& section) {
  const IniValue* type = section.find("type");
  return type != nullptr && type->text == "conv";
}

/// Returns the entries of a layer's weightSource.
std::vector<std::string> weight_sources(const IniSection& section) {
  const IniValue* value = section.find("weightSource");
  return value == nullptr ? std::vector<std::string>{} : split_list(value->text);
}

/// Makes a conv layer local, and with it those whose weights it shares.
void make_local(IniFile& definition, const std::string& name, Diagnostics& diagnostics) {
  definition = with_key(definition, name, "sharedBiases", std::nullopt);
  definition = with_key(definition, name, "type", "local");
  for (const std::string& entry : weight_sources(*definition.find(name))) {
    const std::string source = entry.substr(0, entry.find('['));
    const IniSection* section = definition.find(source);  // the graph builder reports one that is missing
    if (section == nullptr || !is_conv(*section)) continue;
    diagnostics.warning(section->where, "--conv-to-local: layer '" + source +
                                            "' becomes local too, because '" + name + "' shares its weights");
    make_local(definition, source, diagnostics);
  }
}

void conv_to_local(IniFile& definition, const std::string& name, Diagnostics& diagnostics) {
  const IniSection* section = find_layer(definition, "conv-to-local", name, diagnostics);
  if (section == nullptr) return;
  const IniValue* type = section->find("type");
  if (is_conv(*section)) {
    make_local(definition, name, diagnostics);
  } else if (type != nullptr && type->text == "local") {
    diagnostics.warning(section->where, "--conv-to-local: layer '" + name + "' is local already");
  } else {
    diagnostics.error(section->where, "--conv-to-local: layer '" + name + "' is not of type conv");
  }
}

void unshare(IniFile& definition, const std::string& what, Diagnostics& diagnostics) {
  const std::string name = what.substr(0, what.find('['));
  const IniSection* section = find_layer(definition, "unshare-weights", name, diagnostics);
  if (section == nullptr) return;
  std::vector<std::string> sources = weight_sources(*section);
  std::size_t first = 0, last = sources.size();
  if (name != what) {
    const IniValue* value = section->find("inputs");
    const std::size_t inputs = value == nullptr ? 0 : split_list(value->text).size();
    ParamSpec rules;
    rules.min = 0;
    rules.max = std::max(1.0, static_cast<double>(inputs)) - 1;
    int index = 0;
    std::string wrong =
        what.back() == ']'
            ? parse_value(what.substr(name.size() + 1, what.size() - name.size() - 2), rules, index)
            : "expects layer or layer[index]";
    if (!wrong.empty()) return diagnostics.error({}, "--unshare-weights: '" + what + "': " + wrong);
    first = std::min(static_cast<std::size_t>(index), last);
    last = std::min(first + 1, last);
  }
  if (std::all_of(sources.begin() + static_cast<std::ptrdiff_t>(first),
                  sources.begin() + static_cast<std::ptrdiff_t>(last),
                  [](const std::string& s) { return s.empty(); }))
    return diagnostics.warning(section->where, "--unshare-weights: '" + what + "' shares no weights");
  for (std::size_t i = first; i < last; ++i) sources[i].clear();
  definition = with_key(definition, name, "weightSource", join(sources, ","));
}

/// Converts a matrix with dims `from` to dims `to`: unchanged, repeated along new leading dimensions (a
/// filter at every position), or from unshared biases (O,Y,X) to those of a local layer (Y,X,O), with the
/// outputs in dimension `axis` of `from` and `to_axis` of `to`.
NamedTensor reshaped(const NamedTensor& from, int axis, const Dims& to, int to_axis) {
  // The dimensions of a cube say nothing about their order.
  const bool same_order = axis == to_axis;
  if (same_order && from.dims == to) return from;
  NamedTensor out{to, {}};
  const auto count = static_cast<std::size_t>(element_count(to));
  out.values.reserve(count);
  if (to.size() == from.dims.size() + 2 && std::equal(from.dims.begin(), from.dims.end(), to.begin() + 2)) {
    while (out.values.size() < count)
      out.values.insert(out.values.end(), from.values.begin(), from.values.end());
    return out;
  }
  if (!same_order && to.size() == 3 && from.dims == Dims{to[2], to[0], to[1]}) {
    const auto maps = static_cast<std::size_t>(to[2]), positions = count / maps;
    for (std::size_t p = 0; p < positions; ++p)
      for (std::size_t o = 0; o < maps; ++o) out.values.push_back(from.values[o * positions + p]);
    return out;
  }
  return from;  // of another net, which loading refuses
}

}  // namespace

void convert_definition(IniFile& definition, const NetFileOptions& options, Diagnostics& diagnostics) {
  for (const std::string& what : split_list(options.unshare_weights)) unshare(definition, what, diagnostics);
  for (const std::string& name : split_list(options.conv_to_local))
    conv_to_local(definition, name, diagnostics);
}

void convert_tensors(TensorFile& tensors, UpdateWindows& windows, const Graph& before, const Graph& after) {
  TensorFile converted = tensors;
  const UpdateWindows windows_before = windows;
  for (const Node* layer : whole_layers(after)) {
    const Node& node = *layer;
    const Node* old = find_layer(before, node.layer_name);
    for (std::size_t i = 0; old != nullptr && i < std::min(node.owners.size(), old->owners.size()); ++i) {
      if (node.owners[i] != WeightOwner{node.id, i}) continue;
      const WeightOwner& owner = old->owners[i];
      const std::string& old_layer = before.nodes[owner.node].layer_name;
      const WeightSpec& old_spec = before.weight(owner);
      const WeightSpec& spec = node.layer->weights[i];
      const Dims dims = whole_matrix(after, node.owners[i]).dims;
      const auto convert = [&](const std::string& from, const std::string& to) {
        const auto found = tensors.tensors.find(from);
        if (found != tensors.tensors.end())
          converted.tensors[to] = reshaped(found->second, old_spec.output_axis, dims, spec.output_axis);
      };
      const std::string from_matrix = old_layer + "." + old_spec.name,
                        matrix = node.layer_name + "." + spec.name;
      convert(from_matrix, matrix);
      if (const auto window = windows_before.find(from_matrix); window != windows_before.end())
        set_window(windows, matrix, window->second);
      for (const char* suffix : kTrainingSuffixes)
        convert(increment_name(old_layer, old_spec.name, suffix),
                increment_name(node.layer_name, spec.name, suffix));
    }
  }
  tensors = std::move(converted);
}

}  // namespace convnet
