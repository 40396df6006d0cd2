// Device models from files: good ones, and everything that can be wrong with them.
#include "convnet/plan/device_model.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;
using nlohmann::json;

namespace convnet::test {
namespace {

json good_model() {
  return {{"name", "test"},           {"source", "made up"},    {"flops", 1e12},
          {"memory_bandwidth", 1e11}, {"link_bandwidth", 1e10}, {"host_bandwidth", 1e9}};
}

/// The error of a file with this text; "" if it can be read.
std::string error_of(const std::string& text) {
  const TempFolder folder;
  const std::string file = folder / "model.json";
  write_file(file, text);
  try {
    read_device_model(file);
    return "";
  } catch (const InputError& error) {
    const std::string message = error.what();
    CHECK(message.find(file) == 0);
    return message;
  }
}

std::string error_with(const std::string& key, const json& value) {
  json model = good_model();
  model[key] = value;
  return error_of(model.dump());
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text << " should contain: " << part);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("model file: every key arrives") {
  json j = good_model();
  j["source"] = {"a data sheet", "a measurement"};
  j["efficiency"] = 0.5;
  j["memory_efficiency"] = 0.25;
  j["link_efficiency"] = 1;
  j["link_latency"] = 1e-6;
  j["task_overhead"] = 0;
  j["concurrent_streams"] = false;
  j["switch_devices"] = 4;
  j["uplink_bandwidth"] = 12345;
  j["uplink_latency"] = 3e-6;
  const TempFolder folder;
  write_file(folder / "m.json", j.dump());
  const DeviceModel m = read_device_model(folder / "m.json");
  CHECK(m.name == "test");
  CHECK(m.source == "a data sheet; a measurement");
  CHECK(m.flops.fp32 == 1e12);
  CHECK(m.flops.bf16 == 1e12);
  CHECK(m.efficiency.tf32 == 0.5);
  CHECK(m.memory_bandwidth == 1e11);
  CHECK(m.memory_efficiency == 0.25);
  CHECK(m.link_bandwidth == std::vector<double>{1e10});
  CHECK(m.link_efficiency == 1);
  CHECK(m.link_latency == 1e-6);
  CHECK(m.host_bandwidth == 1e9);
  CHECK(m.task_overhead == 0);
  CHECK_FALSE(m.concurrent_streams);
  CHECK_FALSE(m.shared_bus);
  REQUIRE(m.switches.size() == 1);
  CHECK(m.switches[0].devices == std::vector<int>{4});
  CHECK(m.switches[0].bandwidth == std::vector<double>{12345});
  CHECK(m.switches[0].latency == 3e-6);
  j.erase("uplink_latency");
  write_file(folder / "m.json", j.dump());
  CHECK(read_device_model(folder / "m.json").switches[0].latency == 1e-6);
  // Short ones are GPUs without overheads.
  write_file(folder / "m.json", good_model().dump());
  CHECK(read_device_model(folder / "m.json").concurrent_streams);
}

/// Returns the number of devices that a name like "8 machines of 4 x Tesla" tells.
int devices_in_name(const std::string& name) {
  std::smatch found;
  REQUIRE(std::regex_search(name, found, std::regex("^(?:([0-9]+) machines of )?([0-9]+) x ")));
  return (found[1].matched ? std::stoi(found[1]) : 1) * std::stoi(found[2]);
}

TEST_CASE("model file: the models of bench/ can be read and say where their numbers come from") {
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator(CONVNET_SOURCE_DIR "/bench/models")) {
    if (entry.path().extension() != ".json") continue;
    INFO(entry.path());
    const DeviceModel m = read_device_model(entry.path().string());
    seen.insert(entry.path().stem().string());
    const json j = json::parse(read_file(entry.path().string()));
    for (const auto& [key, value] : j.items()) {
      INFO(key);
      if (key == "devices")
        CHECK(m.devices == devices_in_name(m.name));
      else if (value.is_number() || value.is_object())
        CHECK(m.source.find(key) != std::string::npos);
    }
  }
  CHECK(seen.count("nvlink-8gpu") == 1);
  CHECK(seen.count("pcie-8gpu") == 1);
  CHECK(seen.count("k20-pcie-8gpu") == 1);
  CHECK(seen.count("nvlink-512gpu") == 1);
}

TEST_CASE("model file: wrong numbers") {
  for (const json& wrong : {json(0), json(4097), json(2.5), json("8")})
    contains(error_with("devices", wrong), "key 'devices' expects an integer between 1 and 4096");
  contains(error_with("flops", 0), "key 'flops' expects a number of at least 1 or an object");
  contains(error_with("flops", -5e12), "key 'flops' expects");
  contains(error_with("flops", 1e30), "key 'flops' expects");
  contains(error_with("flops", "fast"), "key 'flops' expects");
  contains(error_with("memory_bandwidth", nullptr), "key 'memory_bandwidth' expects");
  contains(error_with("link_bandwidth", json::array({1, 0})), "key 'link_bandwidth' expects");
  contains(error_with("host_bandwidth", 0.5), "key 'host_bandwidth' expects");
  contains(error_with("efficiency", 1.01), "key 'efficiency' expects a number above 0, up to 1");
  contains(error_with("memory_efficiency", 0), "key 'memory_efficiency' expects");
  contains(error_with("link_efficiency", true), "key 'link_efficiency' expects");
  contains(error_with("link_latency", -1e-6),
           "key 'link_latency' expects a number of seconds between 0 and 10");
  contains(error_with("task_overhead", 11), "key 'task_overhead' expects a number of seconds");
}

TEST_CASE("model file: numbers by precision") {
  json j = good_model();
  j["flops"] = {{"fp32", 1e12}, {"bf16", 4e12}};
  j["efficiency"] = {{"bf16", 0.25}};
  const TempFolder folder;
  write_file(folder / "m.json", j.dump());
  const DeviceModel m = read_device_model(folder / "m.json");
  CHECK(m.flops.of(Precision::fp32) == 1e12);
  CHECK(m.flops.of(Precision::tf32) == 0);  // not known
  CHECK(m.flops.of(Precision::bf16) == 4e12);
  CHECK(m.efficiency.of(Precision::fp32) == 1);
  CHECK(m.efficiency.of(Precision::bf16) == 0.25);
  const std::string expected = "key 'flops' expects a number of at least 1 or an object of such numbers";
  contains(error_with("flops", json::object()), expected);
  contains(error_with("flops", {{"fp16", 1e12}}), expected);
  contains(error_with("flops", {{"fp32", 1e12}, {"bf16", 0}}), expected);
  contains(error_with("flops", {{"fp32", "fast"}}), expected);
  contains(error_with("efficiency", {{"fp32", 2}}), "key 'efficiency' expects");
  contains(error_of(R"({"name": "x", "flops": {"fp32": 1e12, "fp32": 2e12}})"),
           "key 'flops.fp32' is given twice");
}

TEST_CASE("model file: memory holds what each device needs, or all together") {
  const Table<DeviceId, std::int64_t> needs({30, 50});
  CHECK(MachineMemory{}.holds(needs));
  CHECK(MachineMemory{50, false}.holds(needs));
  CHECK_FALSE(MachineMemory{49, false}.holds(needs));
  CHECK(MachineMemory{80, true}.holds(needs));
  CHECK_FALSE(MachineMemory{79, true}.holds(needs));
}

TEST_CASE("model file: numbers that are not finite") {
  for (const std::string number : {"1e999", "-1e999"})
    contains(error_of(R"({"name":"x","flops":)" + number + "}"), "is no JSON that can be used");
  for (const std::string number : {"NaN", "Infinity", "-Infinity", "nan", "0x10"})
    contains(error_of(R"({"name":"x","flops":)" + number + "}"), "is no JSON");
}

TEST_CASE("model file: wrong flags, counts and texts") {
  contains(error_with("concurrent_streams", 1), "key 'concurrent_streams' expects true or false, not '1'");
  contains(error_with("shared_bus", "yes"), "key 'shared_bus' expects true or false");
  const auto switches = [](const json& devices) {
    json model = good_model();
    model["uplink_bandwidth"] = 1e9;
    model["switch_devices"] = devices;
    return error_of(model.dump());
  };
  contains(switches(0), "key 'switch_devices' expects an integer between 1 and 4096");
  contains(switches(2.5), "key 'switch_devices' expects integers");
  contains(switches(1e300), "key 'switch_devices' expects an integer");
  contains(error_with("name", 5), "key 'name' expects a line of text, not '5'");
  contains(error_with("name", ""), "key 'name' expects a line of text");
  contains(error_with("name", "two\nlines"), "key 'name' expects a line of text");
  contains(error_with("name", "\x1b[31mred"), "key 'name' expects a line of text");
  contains(error_with("source", json::array()), "key 'source' expects a line of text");
  contains(error_with("source", {"good", 3}), "key 'source' expects a line of text");
}

TEST_CASE("model file: unknown, missing and repeated keys") {
  contains(error_with("memory_bandwith", 1e11),
           "key 'memory_bandwith' is unknown; did you mean 'memory_bandwidth'?");
  contains(error_with("Flops", 1e11), "did you mean 'flops'?");
  contains(error_with("colour", "green"), "key 'colour' is unknown; a device model has name, source, ");
  for (const std::string key :
       {"name", "source", "flops", "memory_bandwidth", "link_bandwidth", "host_bandwidth"}) {
    json model = good_model();
    model.erase(key);
    contains(error_of(model.dump()), "key '" + key + "' is missing");
  }
  std::string twice = good_model().dump();
  twice.insert(1, R"("flops": 2,)");
  contains(error_of(twice), "key 'flops' is given twice");
}

TEST_CASE("model file: switches need the speed between them, and a bus has none") {
  contains(error_with("switch_devices", 4), "key 'switch_devices' needs uplink_bandwidth");
  contains(error_with("uplink_bandwidth", 1e9), "key 'uplink_bandwidth' needs switch_devices");
  contains(error_with("uplink_latency", 1e-6), "key 'uplink_latency' needs switch_devices");
  json model = good_model();
  model["switch_devices"] = 4;
  model["uplink_bandwidth"] = 1e9;
  CHECK(error_of(model.dump()).empty());
  model["shared_bus"] = true;
  contains(error_of(model.dump()), "key 'shared_bus' and 'switch_devices' exclude each other");
}

TEST_CASE("model file: switches of several levels") {
  json model = good_model();
  model["link_latency"] = 1e-6;
  model["link_bandwidth"] = {1e10, 2e10};
  model["switches"] = {{{"devices", {2, 1}}, {"bandwidth", 5e9}},
                       {{"devices", 4}, {"bandwidth", {1e9, 2e9}}, {"latency", 3e-5}}};
  const TempFolder folder;
  write_file(folder / "m.json", model.dump());
  const DeviceModel m = read_device_model(folder / "m.json");
  CHECK(m.link_bandwidth == std::vector<double>{1e10, 2e10});
  REQUIRE(m.switches.size() == 2);
  CHECK(m.switches[0].devices == std::vector<int>{2, 1});
  CHECK(m.switches[0].latency == 1e-6);  // that of a link
  CHECK(m.switches[1].bandwidth == std::vector<double>{1e9, 2e9});
  CHECK(m.switches[1].latency == 3e-5);

  const auto wrong = [&](const json& switches) {
    json changed = model;
    changed["switches"] = switches;
    return error_of(changed.dump());
  };
  contains(wrong(4), "key 'switches' expects a list of levels");
  contains(wrong(json::array()), "key 'switches' expects a list of levels");
  contains(wrong({{{"devices", 4}}}), "key 'switches' expects a list of levels");
  contains(wrong({{{"devices", {2, 0}}, {"bandwidth", 1e9}}}), "key 'switches.devices' expects an integer");
  contains(wrong({{{"devices", 2.5}, {"bandwidth", 1e9}}}), "key 'switches.devices' expects integers");
  contains(wrong({{{"devices", 2}, {"bandwidth", "fast"}}}), "key 'switches.bandwidth' expects");
  contains(wrong({{{"devices", 2}, {"bandwidth", 1e9}, {"latency", -1}}}), "key 'switches.latency' expects");
  contains(wrong({{{"devices", 2}, {"bandwidth", 1e9}, {"latncy", 0}}}), "did you mean 'latency'?");
  contains(wrong({{{"devices", 4}, {"bandwidth", 1e9}}, {{"devices", 6}, {"bandwidth", 1e9}}}),
           "device 6 begins a group of level 2, but is in the middle of a group of level 1");
  model["switch_devices"] = 4;
  model["uplink_bandwidth"] = 1e9;
  contains(error_of(model.dump()), "key 'switches' and 'switch_devices' exclude each other");
  std::string twice = good_model().dump();
  twice.insert(1, R"("switches": [{"devices": 2, "devices": 4, "bandwidth": 1}],)");
  contains(error_of(twice), "key 'switches.devices' is given twice");
}

TEST_CASE("model file: all errors at once") {
  const std::string message = error_of(R"({"flops": 0, "nam": "x", "memory_bandwidth": "much"})");
  contains(message, "'flops' expects");
  contains(message, "did you mean 'name'?");
  contains(message, "'memory_bandwidth' expects");
  contains(message, "'host_bandwidth' is missing");
  CHECK(std::count(message.begin(), message.end(), '\n') == 6);
}

TEST_CASE("model file: texts that are no model") {
  contains(error_of(""), "is no JSON");
  contains(error_of("{\n\"name\": \"x\",\n\"flops\": }\n"), "model.json:3: is no JSON: syntax error");
  contains(error_of("{\"name\": \"x\""), "is no JSON");
  contains(error_of("{\"name\": \"\xff\xfe\"}"), "model.json:1: holds bytes that are no UTF-8");
  contains(error_of(std::string("{\"name\": \"a\0b\"}", 14)), "model.json:1: holds a NUL byte");
  contains(error_of("[1, 2]"), "a device model is a JSON object");
  contains(error_of("3"), "a device model is a JSON object");
  contains(error_of(std::string(500000, '[')), "is nested too deeply");
  contains(error_of("{\"name\": " + std::string(500000, '[')), "is nested too deeply");
  std::string objects = "{\"switches\": [{}";
  for (int i = 0; i < 100000; ++i) objects += ",{}";
  contains(error_of(objects + "]}"), "has more objects than a device model can have");
  contains(error_of("{\"name\": \"" + std::string(2000000, 'x') + "\"}"),
           "is longer than a device model can be");
  // A long value is not repeated in full.
  CHECK(error_with("name", std::string(100000, 'x')).size() < 500);
  CHECK(error_with(std::string(100000, 'k'), 1).size() < 1000);
  CHECK(error_of("{\"name\": " + std::string(100000, '1') + "}").size() < 500);
  CHECK(error_of("{\"name\": \"" + std::string(100000, 'x')).size() < 500);
}

TEST_CASE("model file: files that cannot be read") {
  const TempFolder folder;
  contains(message_of<InputError>([&] { read_device_model(folder / "none.json"); }),
           "none.json: cannot be opened");
  CHECK_THROWS_AS(read_device_model(folder.path()), InputError);
  contains(message_of<InputError>([] { read_device_model("/dev/zero"); }), "/dev/zero: is longer");
}

}  // namespace convnet::test
