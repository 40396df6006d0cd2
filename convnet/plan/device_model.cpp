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
constexpr int kDeepest = 3;

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

constexpr std::array<Key<double>, 10> kNumbers = {{
    {"memory_bandwidth", &DeviceModel::memory_bandwidth, true, kRate, kLeastRate, kMostRate},
    {"memory_efficiency", &DeviceModel::memory_efficiency, false, kShare, kLeastShare, 1},
    {"link_bandwidth", &DeviceModel::link_bandwidth, true, kRate, kLeastRate, kMostRate},
    {"link_efficiency", &DeviceModel::link_efficiency, false, kShare, kLeastShare, 1},
    {"link_latency", &DeviceModel::link_latency, false, kSeconds, 0, kMostSeconds},
    {"host_bandwidth", &DeviceModel::host_bandwidth, true, kRate, kLeastRate, kMostRate},
    {"memory", &DeviceModel::memory, false, kBytes, kLeastBytes, kMostBytes},
    {"task_overhead", &DeviceModel::task_overhead, false, kSeconds, 0, kMostSeconds},
    {"uplink_bandwidth", &DeviceModel::uplink_bandwidth, false, kRate, kLeastRate, kMostRate},
    {"uplink_latency", &DeviceModel::uplink_latency, false, kSeconds, 0, kMostSeconds},
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

std::vector<std::string> all_keys() {
  std::vector<std::string> keys = {"name", "source", "switch_devices"};
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
    for (const Key<ByPrecision>& key : kByPrecision) by_precision(key);
    for (const Key<double>& key : kNumbers) number(key);
    for (const FlagKey& key : kFlags) flag(key);
    switch_size();
    topology();
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

  void switch_size() {
    const json* value = find("switch_devices", false, "");
    if (value == nullptr) return;
    const double given = value->is_number() ? value->get<double>() : -1;
    if (given >= 1 && given <= 4096 && given == static_cast<int>(given))
      model_.switch_devices = static_cast<int>(given);
    else
      wrong_value("switch_devices", "an integer between 1 and 4096", *value);
  }

  void topology() {
    const bool switches = object_.contains("switch_devices"), uplinks = object_.contains("uplink_bandwidth");
    if (switches && !uplinks) error("switch_devices", "needs uplink_bandwidth, the speed between switches");
    if (!object_.contains("uplink_latency"))
      model_.uplink_latency = model_.link_latency;
    else if (!switches)
      error("uplink_latency", "needs switch_devices, the devices of a switch");
    if (uplinks && !switches) error("uplink_bandwidth", "needs switch_devices, the devices of a switch");
    if (model_.shared_bus && switches)
      error("shared_bus", "and 'switch_devices' exclude each other: devices share one bus or have switches");
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

DeviceModel read_device_model(const std::string& file) {
  const std::string text = file_text(file);
  std::set<std::string> keys;
  std::vector<std::string> repeated;
  std::string outer;  // the key whose value is an object
  const auto watch = [&](int depth, json::parse_event_t event, const json& parsed) {
    // Code that walks a value, like printing it, needs stack for each level.
    if (depth > kDeepest) throw InputError(file + ": is nested too deeply for a device model");
    if (event != json::parse_event_t::key) return true;
    // The parser keeps the last of equal keys; a model with two must not be half believed.
    if (depth == 1) outer = parsed.get<std::string>();
    const std::string key = depth == 1 ? outer : outer + "." + parsed.get<std::string>();
    if (!keys.insert(key).second) repeated.push_back(key);
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
