#include "convnet/graph/devices.h"

#include <algorithm>

#include "convnet/config/text.h"

namespace convnet {
namespace {

std::vector<DeviceId> first_devices(int count) {
  const IdRange<DeviceId> devices(count);
  return {devices.begin(), devices.end()};
}

}  // namespace

void DeviceReader::error(const SourceLocation& where, const std::string& layer, const std::string& message) {
  diagnostics_.error(where, "layer '" + layer + "': " + message);
}

bool DeviceReader::read_gpus(const IniSection& section, Node& node) {
  if (options_.placement != nullptr) {
    const LayerPlace& place = options_.placement->at(section.name);
    node.gpus = place.gpus;
    if (place.divided) node.gpus.resize(1, DeviceId(0));
    node.placed = true;
    node.gpu_where = section.where;
    return true;
  }
  const IniValue* value = section.find("gpu");
  node.placed = value != nullptr;
  node.gpu_where = node.placed ? value->where : section.where;
  if (value == nullptr) {
    node.gpus = {DeviceId(0)};
    for (const NodeId input : node.inputs) {
      if (graph_.nodes[input].role == LayerRole::data) continue;
      node.gpus = graph_.nodes[input].gpus;
      break;
    }
  } else if (!parse_gpus(section, *value, node)) {
    return false;
  }
  if (options_.data_parallel) node.gpus = first_devices(std::max(1, options_.devices));
  return true;
}

bool DeviceReader::parse_gpus(const IniSection& section, const IniValue& line, Node& node) {
  ParamSpec rules;
  rules.min = 0;
  rules.max = 1023;
  std::vector<int> gpus;
  if (std::string wrong = parse_number_list(line.text, rules, gpus); !wrong.empty()) {
    error(line.where, section.name, "gpu " + wrong);
    return false;
  }
  for (const int gpu : gpus) {
    if (std::count(node.gpus.begin(), node.gpus.end(), DeviceId(gpu)) > 0) {
      error(line.where, section.name, "gpu=" + line.text + " lists " + std::to_string(gpu) + " twice");
      return false;
    }
    node.gpus.push_back(DeviceId(gpu));
    last_gpu_[section.name] = std::max(last_gpu_[section.name], gpu);
  }
  if (node.gpus.empty()) {
    error(line.where, section.name, "gpu= lists no device; leave the key out or write gpu=0");
    return false;
  }
  return true;
}

bool DeviceReader::read_parallel(const IniSection& section, Node& node) {
  const Division division = node.layer->facts.division;
  // On other layers the key would be ignored, and gpu= mean replicas.
  const IniValue* value = section.find("parallel");
  const bool asked = value != nullptr && value->text == "model";
  if (asked && !value->from_default && division != Division::outputs) {
    error(value->where, section.name,
          "parallel=model divides fc layers only, not one of type '" + node.type + "'");
    return false;
  }
  if (options_.data_parallel) return true;
  if (options_.placement != nullptr) {
    const LayerPlace& place = options_.placement->at(section.name);
    if (place.divided) node.part_gpus = division == Division::outputs ? place.gpus : parts_of_inputs(node);
  } else if (division == Division::outputs && asked) {
    node.part_gpus = node.gpus;
    for (const NodeId input : node.inputs) {
      const Node& in = graph_.nodes[input];
      if (node.placed || in.role == LayerRole::data) continue;
      if (!in.part_gpus.empty()) node.part_gpus = in.part_gpus;
      break;
    }
  } else if (division == Division::as_inputs && section.find("gpu") == nullptr) {
    node.part_gpus = parts_of_inputs(node);
  }
  if (node.part_gpus.size() == 1) node.part_gpus.clear();
  if (!node.part_gpus.empty()) node.gpus = {node.part_gpus[0]};
  return true;
}

/// Returns the devices that all inputs are divided over, if these are the same; else none.
std::vector<DeviceId> DeviceReader::parts_of_inputs(const Node& node) const {
  const Node& first = graph_.nodes[node.inputs[0]];
  for (const NodeId input : node.inputs) {
    const Node& in = graph_.nodes[input];
    if (in.part_gpus != first.part_gpus || in.layer->output.size() != first.layer->output.size()) return {};
  }
  return first.part_gpus;
}

void DeviceReader::check_count(const IniFile& definition) {
  if (options_.devices == 0 || options_.moved()) return;
  int needed = 1;
  for (const auto& [section, last] : last_gpu_) needed = std::max(needed, last + 1);
  for (const auto& [section, last] : last_gpu_) {
    if (last < options_.devices) continue;
    const IniValue* value = definition.find(section)->find("gpu");
    error(
        value->where, section,
        "gpu=" + value->text + ": index " + std::to_string(last) + " is beyond the " +
            std::to_string(options_.devices) + (options_.devices == 1 ? " device" : " devices") +
            (options_.processes > 1
                 ? " of " + std::to_string(options_.processes) + " processes; the layers need " +
                       std::to_string(needed) + " in all of them together, as each process's --gpu lists them"
                 : " that --gpu lists; the layers need " + std::to_string(needed) + ", like --gpu " +
                       number_list(numbers_of(first_devices(needed)))));
  }
}

}  // namespace convnet
