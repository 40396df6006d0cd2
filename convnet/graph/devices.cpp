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
    node.gpus = options_.placement->at(section.name).replicas();
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
  if (line.is_wrong) return false;
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
  const IniValue* parts = division == Division::outputs ? section.find("parts") : nullptr;
  int count = parts == nullptr ? 0 : to_number<int>(parts->text).value_or(0);
  if (count > 0 && !asked && !parts->from_default) {
    error(
        parts->where, section.name,
        "parts=" + parts->text + " divides a layer with parallel=model only; add that line or remove parts=");
    return false;
  }
  if (options_.data_parallel) return true;
  if (options_.placement != nullptr) {
    const LayerPlace& place = options_.placement->at(section.name);
    if (place.divided() && division == Division::outputs) divide(node, place);
    if (place.divided() && division == Division::as_inputs) divide_as_inputs(node);
  } else if (division == Division::outputs && asked) {
    std::vector<DeviceId> gpus = node.gpus;
    for (const NodeId input : node.inputs) {
      const Node& in = graph_.nodes[input];
      if (node.placed || in.role == LayerRole::data) continue;
      if (in.division.gpus.empty()) break;
      gpus = in.division.gpus;
      if (count == 0) count = in.parts();
      break;
    }
    const auto devices = static_cast<int>(gpus.size());
    if (count == 0) count = devices;
    if (parts != nullptr && devices % count != 0) {
      error(parts->where, section.name,
            "parts=" + parts->text + " does not divide the number of its devices, " +
                std::to_string(devices) + " (gpu=" + number_list(numbers_of(gpus)) + ")");
      return false;
    }
    divide(node, {gpus, count});
  } else if (division == Division::as_inputs && section.find("gpu") == nullptr) {
    divide_as_inputs(node);
  }
  return true;
}

void DeviceReader::divide(Node& node, const LayerPlace& place) {
  node.gpus = place.replicas();
  if (place.divided()) node.division.gpus = place.gpus;
}

/// Divides an element-wise layer over the devices of its inputs, if all of them are divided alike.
void DeviceReader::divide_as_inputs(Node& node) const {
  const Node& first = graph_.nodes[node.inputs[0]];
  const bool alike = std::all_of(node.inputs.begin(), node.inputs.end(), [&](NodeId input) {
    const Node& in = graph_.nodes[input];
    return in.gpus == first.gpus && in.division.gpus == first.division.gpus &&
           in.layer->output.size() == first.layer->output.size();
  });
  if (alike && !first.division.gpus.empty()) divide(node, {first.division.gpus, first.parts()});
}

void DeviceReader::check_count(const IniFile& definition) {
  if (options_.devices == 0 || options_.moved()) return;
  int needed = 1;
  for (const auto& [section, last] : last_gpu_) needed = std::max(needed, last + 1);
  for (const auto& [section, last] : last_gpu_) {
    if (last < options_.devices) continue;
    const IniValue* value = definition.find(section)->find("gpu");
    error(value->where, section,
          "gpu=" + value->text + ": index " + std::to_string(last) + " is beyond the " +
              std::to_string(options_.devices) + (options_.devices == 1 ? " device" : " devices") +
              (options_.processes > 1 ? " of " + std::to_string(options_.processes) +
                                            " processes; the layers need " + std::to_string(needed) +
                                            " in all of them together, as each process's --gpu lists them"
                                      : " that --gpu lists; the layers need " + std::to_string(needed) +
                                            ", like --gpu " + number_list(numbers_of(first_devices(needed))) +
                                            "; --parallel data and --parallel auto leave gpu= lines aside"));
  }
}

}  // namespace convnet
