// Queries of a finished graph.
#include <algorithm>
#include <map>
#include <set>

#include "convnet/graph/graph.h"
#include "convnet/graph/settings.h"
#include "layers/layer.h"

namespace convnet {

std::string Node::place_text() const {
  const std::string place = where.str();
  return place + (place.empty() ? "" : ": ") + "layer '" + section + "'";
}

std::vector<DeviceId> LayerPlace::replicas() const {
  std::vector<DeviceId> first;
  for (std::size_t i = 0; i < gpus.size(); i += static_cast<std::size_t>(parts)) first.push_back(gpus[i]);
  return first;
}

const Node* Graph::find(std::string_view name) const {
  for (const Node& node : nodes) {
    if (node.name == name) return &node;
  }
  return nullptr;
}

std::vector<int> Graph::replica_counts() const {
  std::set<int> counts;
  for (const Node& node : nodes) counts.insert(static_cast<int>(node.gpus.size()));
  return {counts.begin(), counts.end()};
}

std::vector<NodeId> Graph::gradient_sources(const WeightOwner& matrix) const {
  std::vector<NodeId> sources;
  for (const Node& user : nodes) {
    for (std::size_t i = 0; user.gets_gradient && i < user.owners.size(); ++i) {
      if (user.owners[i] == matrix && learns(user, i)) sources.push_back(user.id);
    }
  }
  return sources;
}

std::set<NodeId> Graph::needed_for(const std::vector<NodeId>& wanted) const {
  std::set<NodeId> needed(wanted.begin(), wanted.end());
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (needed.contains(node->id)) needed.insert(node->inputs.begin(), node->inputs.end());
  }
  return needed;
}

int Graph::gpu_count() const {
  int count = 1;
  for (const Node& node : nodes) {
    for (const DeviceId gpu : node.gpus) count = std::max(count, gpu.value() + 1);
    for (const DeviceId gpu : node.division.gpus) count = std::max(count, gpu.value() + 1);
  }
  return count;
}

namespace {

/// Returns the keys that layers of this type read from the definition file. Others may be names of the
/// user's own, for references.
std::vector<ParamSpec> defining_params(const LayerType& type) {
  std::vector<ParamSpec> all = type.params;
  all.insert(all.end(), common_params().begin(), common_params().end());
  std::erase_if(all, [](const ParamSpec& spec) { return spec.file == CfgFile::parameters; });
  return all;
}

}  // namespace

bool places_layer(const LayerType& type, const std::string& key) {
  // The parts of an sfc layer are not a place.
  const bool divisible = std::any_of(type.params.begin(), type.params.end(),
                                     [](const ParamSpec& spec) { return spec.key == "parallel"; });
  return key == "gpu" || (divisible && (key == "parallel" || key == "parts"));
}

std::vector<std::string> logical_signature(const IniFile& definition) {
  static const std::set<std::string> of_beginning = {"initw",     "initb",     "initwfunc",
                                                     "initbfunc", "initscale", "sumwidth"};
  Diagnostics warned_before;
  std::vector<std::string> lines;
  for (const IniSection& section : definition.sections) {
    std::map<std::string, std::string> sorted;
    const IniValue* name = section.find("type");
    const LayerType* type = name == nullptr ? nullptr : find_layer_type(name->text);
    const auto add = [&](const std::string& key, const IniValue* value) {
      const bool has_meaning = !of_beginning.contains(key) && (type == nullptr || !places_layer(*type, key));
      if (value != nullptr && has_meaning) sorted[key] = join(split_list(value->text));
    };
    if (type == nullptr) {
      for (const IniValue& value : section.values) add(value.key, &value);
    } else {
      // A key may be written by an older name.
      for (const ParamSpec& spec : defining_params(*type))
        add(lower(spec.key), choose_value(spec, section.name, section, nullptr, warned_before));
    }
    std::string line = "[" + section.name + "]";
    for (const auto& [key, value] : sorted) line += " " + key + "=" + value;
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace convnet
