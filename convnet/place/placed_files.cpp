#include "convnet/place/placed_files.h"

#include <algorithm>
#include <map>
#include <set>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "convnet/config/ini_edit.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

std::vector<std::string> inputs_of(const IniSection& section) {
  const IniValue* value = section.find("inputs");
  return value == nullptr ? std::vector<std::string>() : split_list(value->text);
}

/// Writes the lines of a placement into a definition that has none.
class PlaceWriter {
 public:
  PlaceWriter(IniFile file, const Graph& placed, const Placement& placement)
      : file_(std::move(file)), placement_(placement) {
    for (const Node& node : placed.nodes) {
      if (node.implicit) continue;
      if (node.role == LayerRole::data) data_.insert(node.section);
      if (node.layer->weights.empty()) weightless_.insert(node.section);
    }
    for (const IniSection& section : file_.sections) {
      names_.push_back(section.name);
      inputs_[section.name] = inputs_of(section);
    }
  }

  IniFile write() {
    const bool data_follow = std::all_of(data_.begin(), data_.end(), [&](const std::string& layer) {
      return placement_.at(leader_of(layer)).replicas() == placement_.at(layer).gpus;
    });
    for (const std::string& layer : names_) {
      const LayerPlace& place = placement_.at(layer);
      if (place.divided()) {
        if (weightless_.contains(layer)) continue;  // divided as its inputs are
        file_ = with_key(file_, layer, "parallel", "model");
        if (place.parts < std::ssize(place.gpus))
          file_ = with_key(file_, layer, "parts", std::to_string(place.parts));
      } else if (data_.contains(layer) ? data_follow : place.gpus == inherited(layer)) {
        continue;
      }
      file_ = with_key(file_, layer, "gpu", number_list(numbers_of(place.gpus)));
    }
    return std::move(file_);
  }

 private:
  /// Returns the first input that is not a data layer; "" if there is none.
  std::string layer_below(const std::string& layer) const {
    for (const std::string& input : inputs_.at(layer)) {
      if (!data_.contains(input)) return input;
    }
    return "";
  }

  /// Returns the devices of a layer without gpu=.
  std::vector<DeviceId> inherited(const std::string& layer) const {
    const std::string below = layer_below(layer);
    return below.empty() ? std::vector<DeviceId>{DeviceId(0)} : placement_.at(below).replicas();
  }

  /// Returns the layer from which a data layer without gpu= takes its devices. It is another input of the
  /// first layer that reads the data, or that layer itself if all its inputs are data.
  std::string leader_of(const std::string& data) const {
    for (const std::string& user : names_) {
      const std::vector<std::string>& inputs = inputs_.at(user);
      if (std::find(inputs.begin(), inputs.end(), data) == inputs.end()) continue;
      const std::string below = layer_below(user);
      return below.empty() ? user : below;
    }
    return data;
  }

  IniFile file_;
  const Placement& placement_;
  std::vector<std::string> names_;  ///< names of the sections, in order
  std::map<std::string, std::vector<std::string>> inputs_;
  std::set<std::string> data_, weightless_;
};

/// Returns the definition without the keys that place its layers. A key of [DEFAULT] that means another thing
/// in some layers, as `parts` does in sfc layers, becomes their own.
IniFile without_places(IniFile file) {
  const std::vector<IniSection> sections = file.sections;
  for (const std::string key : {"gpu", "parallel", "parts"}) {
    std::vector<std::string> placed;
    for (const IniSection& section : sections) {
      const LayerType& type = *find_layer_type(section.find("type")->text);
      const IniValue* value = section.find(key);
      if (places_layer(type, key)) {
        placed.push_back(section.name);
      } else if (value != nullptr && value->from_default &&
                 std::ranges::find(type.params, key, &ParamSpec::key) != type.params.end()) {
        file = with_key(file, section.name, key, value->text);
      }
    }
    for (const std::string& layer : placed) file = without_key(file, layer, key);
  }
  return file;
}

}  // namespace

PlacedFiles placed_files(const IniFile& definition, const IniFile& parameters, const Graph& placed,
                         const Placement& placement) {
  PlacedFiles files{PlaceWriter(without_places(definition), placed, placement).write(), parameters};
  std::map<std::string, int> periods;
  for (const Node& node : placed.nodes) {
    const bool owns = !node.implicit && !node.layer->weights.empty();
    if (owns && parameters.find_or_default(node.section) != nullptr)
      periods[node.section] = node.update_period;
  }
  for (const auto& [layer, period] : periods)
    files.parameters = without_key(files.parameters, layer, "updatePeriod");
  for (const auto& [layer, period] : periods) {
    // In a net of one pass weights are updated once a minibatch without being told.
    if (period > 1)
      files.parameters = with_key(files.parameters, layer, "updatePeriod", std::to_string(period));
  }
  return files;
}

std::string placement_text(const Placement& placement) {
  std::string text;
  for (const auto& [layer, place] : placement) {
    text += "[" + layer + "]\ngpu=" + number_list(numbers_of(place.gpus)) + "\n";
    if (place.divided()) text += "parallel=model\nparts=" + std::to_string(place.parts) + "\n";
  }
  return text;
}

Placement read_placement(const std::string& text, const IniFile& definition, int devices,
                         const std::string& source) {
  const auto refuse = [&](const std::string& layer, const std::string& why) {
    throw InputError(source + ": the placement of layer '" + layer + "' " + why);
  };
  Diagnostics diagnostics;
  const IniFile places = parse_ini(source, text, diagnostics);
  diagnostics.throw_if_errors();
  Placement placement;
  for (const IniSection& section : definition.sections) {
    const IniSection* own = places.find(section.name);
    const IniValue* gpus = own == nullptr ? nullptr : own->find("gpu");
    if (gpus == nullptr) refuse(section.name, "is missing");
    LayerPlace& place = placement[section.name];
    for (const std::string& item : split_list(gpus->text)) {
      const std::optional<int> gpu = to_number<int>(item);
      if (!gpu || *gpu < 0 || *gpu >= devices)
        refuse(section.name, "names device " + excerpt(item) + " of " + std::to_string(devices));
      if (std::count(place.gpus.begin(), place.gpus.end(), DeviceId(*gpu)) > 0)
        refuse(section.name, "names device " + item + " twice");
      place.gpus.push_back(DeviceId(*gpu));
    }
    if (place.gpus.empty()) refuse(section.name, "names no device");
    if (own->find("parallel") == nullptr) continue;
    const auto count = static_cast<int>(place.gpus.size());
    const IniValue* parts = own->find("parts");
    place.parts = parts == nullptr ? count : to_number<int>(parts->text).value_or(0);
    if (parts != nullptr && (place.parts < 1 || count % place.parts != 0))
      refuse(section.name, "has " + excerpt(parts->text) + " parts on " + std::to_string(count) + " devices");
  }
  return placement;
}

}  // namespace convnet
