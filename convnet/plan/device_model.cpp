#include "convnet/plan/device_model.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>
#include <vector>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "convnet/base/text_file.h"
#include "convnet/config/diagnostics.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

using nlohmann::json;

/// Limits that no machine exceeds; between them no prediction overflows.
constexpr double kLeastRate = 1, kMostRate = 1e24, kMostSeconds = 10;
constexpr std::size_t kLongestFile = 1 << 20, kLongestText = 4000;
constexpr int kDeepest = 4, kMostObjects = 1000;
constexpr int kMostDevices = 4096;

/// A key with a number (T is double), or also with an object of numbers by precision (T is ByPrecision).
template <class T>
struct Key {
  const char* name;
  T DeviceModel::*field;
  bool required;
  const char* expected;
  double least, most;
};

constexpr const char* kRate = "a number of at least 1";
constexpr const char* kShare = "a number above 0, up to 1";
constexpr const char* kSeconds = "a number of seconds between 0 and 10";
constexpr const char* kBytes = "a number of bytes, at least 1048576";
constexpr double kLeastShare = 1e-6, kLeastBytes = 1 << 20, kMostBytes = 1e15;

constexpr std::array<Key<double>, 7> kNumbers = {{
    {"memory_bandwidth", &DeviceModel::memory_bandwidth, true, kRate, kLeastRate, kMostRate},
    {"memory_efficiency", &DeviceModel::memory_efficiency, false, kShare, kLeastShare, 1},
    {"link_efficiency", &DeviceModel::link_efficiency, false, kShare, kLeastShare, 1},
    {"link_latency", &DeviceModel::link_latency, false, kSeconds, 0, kMostSeconds},
    {"host_bandwidth", &DeviceModel::host_bandwidth, true, kRate, kLeastRate, kMostRate},
    {"memory", &DeviceModel::memory, false, kBytes, kLeastBytes, kMostBytes},
    {"task_overhead", &DeviceModel::task_overhead, false, kSeconds, 0, kMostSeconds},
}};

constexpr std::array<Key<ByPrecision>, 2> kByPrecision = {{
    {"flops", &DeviceModel::flops, true, kRate, kLeastRate, kMostRate},
    {"efficiency", &DeviceModel::efficiency, false, kShare, kLeastShare, 1},
}};

struct PrecisionName {
  const char* name;
  double ByPrecision::*field;
};
constexpr std::array<PrecisionName, 3> kPrecisions = {
    {{"fp32", &ByPrecision::fp32}, {"tf32", &ByPrecision::tf32}, {"bf16", &ByPrecision::bf16}}};

struct FlagKey {
  const char* name;
  bool DeviceModel::*field;
};
constexpr std::array<FlagKey, 2> kFlags = {{
    {"concurrent_streams", &DeviceModel::concurrent_streams},
    {"shared_bus", &DeviceModel::shared_bus},
}};

std::vector<std::string> level_keys() { return {"devices", "bandwidth", "latency"}; }

std::vector<std::string> all_keys() {
  std::vector<std::string> keys = {"name",     "source",         "devices",          "link_bandwidth",
                                   "switches", "switch_devices", "uplink_bandwidth", "uplink_latency"};
  for (const Key<ByPrecision>& key : kByPrecision) keys.emplace_back(key.name);
  for (const Key<double>& key : kNumbers) keys.emplace_back(key.name);
  for (const FlagKey& key : kFlags) keys.emplace_back(key.name);
  return keys;
}

/// One line of printable text, which may go to a terminal.
bool is_one_line(const std::string& text) {
  return !text.empty() && text.size() <= kLongestText && std::none_of(text.begin(), text.end(), is_control);
}

class ModelReader {
 public:
  ModelReader(const json& object, const std::string& file)
      : object_(object), where_{std::make_shared<const std::string>(file), 0} {}

  DeviceModel read(const std::vector<std::string>& repeated) {
    for (const std::string& key : repeated) error(key, "is given twice");
    refuse_unknown();
    model_.name = text("name");
    model_.source = source();
    read_devices();
    for (const Key<ByPrecision>& key : kByPrecision) by_precision(key);
    for (const Key<double>& key : kNumbers) number(key);
    for (const FlagKey& key : kFlags) flag(key);
    if (const json* rates = find("link_bandwidth", true, std::string(kRate) + kOrList))
      model_.link_bandwidth = list("link_bandwidth", *rates, kRate, kLeastRate, kMostRate);
    read_switches();
    check_groups();
    diagnostics_.throw_if_errors();
    return model_;
  }

 private:
  void error(const std::string& key, const std::string& what) {
    diagnostics_.error(where_, "key " + excerpt(key) + " " + what);
  }

  /// The key's value; null where the file has none, which is an error if it must.
  const json* find(const std::string& key, bool required, const std::string& expected) {
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    if (required) error(key, "is missing; it is " + expected);
    return nullptr;
  }

  void wrong_value(const std::string& key, const std::string& expected, const json& value) {
    error(key, "expects " + expected + ", not " + excerpt(value.dump()));
  }

  void refuse_unknown() {
    const std::vector<std::string> keys = all_keys();
    for (const auto& [key, value] : object_.items()) {
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      error(key, "is unknown" + did_you_mean(key, keys, "a device model has " + join(keys)));
    }
  }

  std::string text(const std::string& key) {
    const std::string expected = "a line of text";
    const json* value = find(key, true, expected);
    if (value == nullptr) return "";
    if (value->is_string() && is_one_line(value->get_ref<const std::string&>()))
      return value->get<std::string>();
    wrong_value(key, expected, *value);
    return "";
  }

  /// A line, or a list of lines.
  std::string source() {
    const std::string expected = "a line of text that says where the numbers come from, or a list of lines";
    const json* value = find("source", true, expected);
    if (value == nullptr) return "";
    const json lines = value->is_array() ? *value : json::array({*value});
    std::vector<std::string> texts;
    for (const json& line : lines) {
      if (line.is_string() && is_one_line(line.get_ref<const std::string&>()))
        texts.push_back(line.get<std::string>());
    }
    if (texts.empty() || texts.size() < lines.size()) wrong_value("source", expected, *value);
    return join(texts, "; ");
  }

  void read_devices() {
    const json* value = find("devices", false, "");
    if (value == nullptr) return;
    if (value->is_number_integer() && *value >= 1 && *value <= kMostDevices)
      model_.devices = value->get<int>();
    else
      wrong_value("devices", "an integer between 1 and 4096", *value);
  }

  void number(const Key<double>& key) {
    const json* value = find(key.name, key.required, key.expected);
    if (value == nullptr) return;
    const double given = value->is_number() ? value->get<double>() : -1;
    if (given >= key.least && given <= key.most)
      model_.*key.field = given;
    else
      wrong_value(key.name, key.expected, *value);
  }

  /// One number for all precisions, or an object with those of some.
  void by_precision(const Key<ByPrecision>& key) {
    const std::string expected = std::string(key.expected) +
                                 " or an object of such numbers by precision, {\"fp32\": ..., \"bf16\": ...}";
    const json* value = find(key.name, key.required, expected);
    if (value == nullptr) return;
    std::map<std::string, json> given;
    if (value->is_object())
      given = value->get<std::map<std::string, json>>();
    else
      for (const PrecisionName& precision : kPrecisions) given[precision.name] = *value;
    ByPrecision numbers = model_.*key.field;
    bool good = !given.empty();
    for (const auto& entry : given) {
      const auto* precision = std::find_if(kPrecisions.begin(), kPrecisions.end(),
                                           [&](const PrecisionName& p) { return p.name == entry.first; });
      const double n = entry.second.is_number() ? entry.second.get<double>() : -1;
      good = good && precision != kPrecisions.end() && n >= key.least && n <= key.most;
      if (good) numbers.*precision->field = n;
    }
    if (good)
      model_.*key.field = numbers;
    else
      wrong_value(key.name, expected, *value);
  }

  void flag(const FlagKey& key) {
    const json* value = find(key.name, false, "");
    if (value == nullptr) return;
    if (value->is_boolean())
      model_.*key.field = value->get<bool>();
    else
      wrong_value(key.name, "true or false", *value);
  }

  static constexpr const char* kOrList = ", or a list of them";

  /// A number, or a list of at least one; `expected` says what a number must be.
  std::vector<double> list(const std::string& key, const json& value, const char* expected, double least,
                           double most) {
    std::vector<double> numbers;
    const json values = value.is_array() ? value : json::array({value});
    for (const json& number : values) {
      const double given = number.is_number() ? number.get<double>() : -1;
      if (given >= least && given <= most) numbers.push_back(given);
    }
    if (!values.empty() && numbers.size() == values.size() && numbers.size() <= kMostDevices) return numbers;
    wrong_value(key, std::string(expected) + kOrList, value);
    return {least};
  }

  /// A level of switches: its numbers of devices, and optionally the others.
  SwitchLevel level(const std::string& devices_key, const json& devices, const std::string& bandwidth_key,
                    const json& bandwidth, const std::string& latency_key, const json* latency) {
    SwitchLevel made;
    made.latency = model_.link_latency;
    for (const double number : list(devices_key, devices, "an integer between 1 and 4096", 1, kMostDevices)) {
      if (number != static_cast<int>(number))
        wrong_value(devices_key, "integers between 1 and 4096", devices);
      made.devices.push_back(static_cast<int>(number));
    }
    made.bandwidth = list(bandwidth_key, bandwidth, kRate, kLeastRate, kMostRate);
    if (latency == nullptr) return made;
    made.latency = latency->is_number() ? latency->get<double>() : -1;
    if (!(made.latency >= 0 && made.latency <= kMostSeconds)) wrong_value(latency_key, kSeconds, *latency);
    return made;
  }

  /// `switches` lists levels; switch_devices, uplink_bandwidth and uplink_latency describe a single one.
  void read_switches() {
    const json* devices = find("switch_devices", false, "");
    const json* bandwidth = find("uplink_bandwidth", false, "");
    const json* latency = find("uplink_latency", false, "");
    const json* levels = find("switches", false, "");
    if (devices != nullptr && bandwidth == nullptr)
      error("switch_devices", "needs uplink_bandwidth, the speed between switches");
    if (devices == nullptr && bandwidth != nullptr)
      error("uplink_bandwidth", "needs switch_devices, the devices of a switch");
    if (devices == nullptr && latency != nullptr)
      error("uplink_latency", "needs switch_devices, the devices of a switch");
    if (devices != nullptr && bandwidth != nullptr)
      model_.switches.push_back(
          level("switch_devices", *devices, "uplink_bandwidth", *bandwidth, "uplink_latency", latency));
    if (levels == nullptr) {
      if (model_.shared_bus && devices != nullptr)
        error("shared_bus",
              "and 'switch_devices' exclude each other: devices share one bus or have switches");
      return;
    }
    if (devices != nullptr)
      error("switches", "and 'switch_devices' exclude each other: list that level, too");
    if (model_.shared_bus)
      error("shared_bus", "and 'switches' exclude each other: devices share one bus or have switches");
    const std::string expected = "a list of levels, {\"devices\": 4, \"bandwidth\": 12e9, \"latency\": 1e-6}";
    if (!levels->is_array() || levels->empty()) return wrong_value("switches", expected, *levels);
    for (const json& one : *levels) {
      if (!one.is_object() || !one.contains("devices") || !one.contains("bandwidth")) {
        wrong_value("switches", expected, one);
        continue;
      }
      for (const auto& [key, value] : one.items()) {
        const std::vector<std::string> keys = level_keys();
        if (std::find(keys.begin(), keys.end(), key) == keys.end())
          error("switches." + key, "is unknown" + did_you_mean(key, keys, "a level has " + join(keys)));
      }
      const auto latency_of = one.find("latency");
      model_.switches.push_back(level("switches.devices", one["devices"], "switches.bandwidth",
                                      one["bandwidth"], "switches.latency",
                                      latency_of == one.end() ? nullptr : &*latency_of));
    }
  }

  /// A group of an outer level consists of whole groups of the level within.
  void check_groups() {
    for (std::size_t l = 1; l < model_.switches.size(); ++l) {
      const SwitchLevel& inner = model_.switches[l - 1];
      const SwitchLevel& outer = model_.switches[l];
      for (int d = 1; d < kMostDevices; ++d) {
        const DeviceId before(d - 1), device(d);
        if (outer.group(before) == outer.group(device) || inner.group(before) != inner.group(device))
          continue;
        error("switches", "has a switch that divides another one: device " + std::to_string(d) +
                              " begins a group of level " + std::to_string(l + 1) +
                              ", but is in the middle of a group of level " + std::to_string(l));
        return;
      }
    }
  }

  const json& object_;
  SourceLocation where_;
  Diagnostics diagnostics_;
  DeviceModel model_;
};

std::string file_text(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    throw InputError(file +
                     ": cannot be opened; --model takes a file like bench/models/nvlink-8gpu.json, or "
                     "'measured' for this machine");
  const std::string bytes = read_bytes(file, kLongestFile);
  if (bytes.size() > kLongestFile) throw InputError(file + ": is longer than a device model can be, 1 MiB");
  return text_of(file, bytes, NotUtf8::is_error);
}

std::ptrdiff_t line_of(const std::string& text, std::size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  return 1 + std::count(text.begin(), end, '\n');
}

/// The parser's message without its number, the place and what the file holds there.
std::string reason(const json::exception& wrong) {
  std::string text = wrong.what();
  text = text.substr(0, text.find("; last read"));
  for (const char* prefix : {"] ", "parse error at ", ": "}) {
    const std::size_t at = text.find(prefix);
    if (at != std::string::npos) text = text.substr(at + std::string_view(prefix).size());
  }
  constexpr std::size_t longest = 120;
  return text.substr(0, longest);
}

}  // namespace

bool MachineMemory::holds(const Table<DeviceId, std::int64_t>& needs) const {
  if (bytes == 0 || needs.empty()) return true;
  const std::int64_t needed = shared ? std::accumulate(needs.begin(), needs.end(), std::int64_t{0})
                                     : *std::max_element(needs.begin(), needs.end());
  return needed <= bytes;
}

int SwitchLevel::group(DeviceId device) const {
  int first = 0;
  for (std::size_t g = 0; g + 1 < devices.size(); ++g) {
    first += devices[g];
    if (device.value() < first) return static_cast<int>(g);
  }
  return static_cast<int>(devices.size()) - 1 + (device.value() - first) / devices.back();
}

double DeviceModel::latency(DeviceId from, DeviceId to) const {
  double seconds = link_latency;
  for (const SwitchLevel& level : switches) {
    if (level.group(from) != level.group(to)) seconds = level.latency;
  }
  return seconds;
}

DeviceModel read_device_model(const std::string& file) {
  const std::string text = file_text(file);
  std::set<std::pair<int, std::string>> keys;
  std::vector<std::string> repeated;
  std::string outer;             // the key of the model whose value is being read
  std::map<int, int> object_at;  // by depth of its keys: the number of the object that is being read
  int objects = 0;
  const auto watch = [&](int depth, json::parse_event_t event, const json& parsed) {
    // Code that walks a value, like printing it, needs stack for each level.
    if (depth > kDeepest) throw InputError(file + ": is nested too deeply for a device model");
    if (event == json::parse_event_t::object_start) object_at[depth + 1] = ++objects;
    // When an object ends, the library searches the whole list that it is in.
    if (objects > kMostObjects) throw InputError(file + ": has more objects than a device model can have");
    if (event != json::parse_event_t::key) return true;
    // The parser keeps the last of equal keys; a model with two must not be half believed.
    if (depth == 1) outer = parsed.get<std::string>();
    const std::string key = depth == 1 ? outer : outer + "." + parsed.get<std::string>();
    if (!keys.emplace(object_at[depth], key).second) repeated.push_back(key);
    return true;
  };
  json object;
  try {
    object = json::parse(text, watch);
  } catch (const json::parse_error& wrong) {
    throw InputError(file + ":" + std::to_string(line_of(text, wrong.byte)) +
                     ": is no JSON: " + reason(wrong));
  } catch (const json::exception& wrong) {
    throw InputError(file + ": is no JSON that can be used: " + reason(wrong));
  }
  if (!object.is_object()) throw InputError(file + ": a device model is a JSON object, {\"name\": ...}");
  return ModelReader(object, file).read(repeated);
}

}  // namespace convnet
