// Predicted timelines: plans of a few tasks whose course is known, models from good and bad files, measured
// operations, and the trace file.
#include "convnet/plan/simulate.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <thread>

#include "convnet/plan/measure.h"
#include "convnet/plan/timeline.h"
#include "kernels/error.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;
using nlohmann::json;

namespace convnet::test {
namespace {

struct TaskSpec {
  TaskKind kind = TaskKind::forward;
  int device = 0;
  Stream stream = Stream::compute;
  std::vector<int> after = {};
  int node = -1;
};

Plan plan_of(const std::vector<TaskSpec>& specs) {
  Plan plan;
  plan.images = 100;
  for (const TaskSpec& spec : specs) {
    Task task;
    task.kind = spec.kind;
    task.device = spec.device;
    task.stream = spec.stream;
    task.after = spec.after;
    task.node = spec.node;
    task.op = FillZero{};
    plan.tasks.push_back(std::move(task));
  }
  return plan;
}

Graph graph_of(const std::vector<std::string>& names) {
  Graph graph;
  for (const std::string& name : names) {
    Node node;
    node.id = static_cast<int>(graph.nodes.size());
    node.name = name;
    graph.nodes.push_back(std::move(node));
  }
  return graph;
}

std::vector<double> begins(const Simulation& s) {
  std::vector<double> times;
  for (const TaskTime& time : s.times) times.push_back(time.begin);
  return times;
}

std::vector<int> path_of(const Simulation& s) {
  std::vector<int> tasks;
  for (const PathStep& step : s.path) tasks.push_back(step.task);
  return tasks;
}

using Seconds = std::vector<double>;
using Path = std::vector<int>;

int add_buffer(Plan& plan, int device, std::int64_t bytes, BufferKind kind = BufferKind::activation) {
  Buffer b;
  b.device = device;
  b.bytes = bytes;
  b.kind = kind;
  plan.buffers.push_back(std::move(b));
  return static_cast<int>(plan.buffers.size()) - 1;
}

// --- The order of tasks -------------------------------------------------------------------------

}  // namespace

TEST_CASE("simulation: a chain on one device takes the sum of its tasks") {
  for (const bool concurrent : {true, false}) {
    const Simulation s = simulate(plan_of({{}, {}, {}}), {1, 2, 4}, concurrent);
    CHECK(begins(s) == Seconds{0, 1, 3});
    CHECK(s.step == 7);
    CHECK(path_of(s) == Path{0, 1, 2});
    REQUIRE(s.devices.size() == 1);
    CHECK(s.devices[0].busy == 7);
    CHECK(s.devices[0].compute == 7);
    CHECK(s.devices[0].communication == 0);
  }
}

TEST_CASE("simulation: nothing takes no time") {
  const Simulation s = simulate(Plan{}, {}, true);
  CHECK(s.step == 0);
  CHECK(s.path.empty());
  CHECK(s.devices.empty());
  CHECK(simulate(plan_of({{}, {}}), {0, 0}, false).step == 0);
  CHECK(simulation_text(simulation_json(s, Plan{}, Graph{}, "nothing")).find("0.000 ms") !=
        std::string::npos);
}

TEST_CASE("simulation: two devices run side by side and wait for each other's results") {
  // Device 1 copies what device 0 made, and is idle until then.
  const Plan plan = plan_of({{TaskKind::forward, 0},
                             {TaskKind::forward, 1},
                             {TaskKind::copy, 1, Stream::copy, {0}},
                             {TaskKind::forward, 1, Stream::compute, {2}},
                             {TaskKind::forward, 0}});
  const Simulation s = simulate(plan, {5, 1, 2, 3, 1}, true);
  CHECK(begins(s) == Seconds{0, 0, 5, 7, 5});
  CHECK(s.step == 10);
  CHECK(path_of(s) == Path{0, 2, 3});
  REQUIRE(s.devices.size() == 2);
  CHECK(s.devices[0].busy == 6);
  CHECK(s.devices[1].compute == 4);
  CHECK(s.devices[1].communication == 2);
  CHECK(s.devices[1].busy == 6);
}

TEST_CASE("simulation: streams run at the same time or take turns") {
  const Plan plan = plan_of({{TaskKind::backward, 0},
                             {TaskKind::reduce_update, 0, Stream::update, {0}},
                             {TaskKind::backward, 0},
                             {TaskKind::backward, 0}});
  const Seconds seconds = {1, 4, 2, 2};
  SECTION("at the same time") {
    const Simulation s = simulate(plan, seconds, true);
    CHECK(begins(s) == Seconds{0, 1, 1, 3});
    CHECK(s.step == 5);
    CHECK(s.devices[0].busy == 5);
    CHECK(s.devices[0].compute == 5);
    CHECK(s.devices[0].communication == 4);
  }
  SECTION("in turn, the update first") {
    const Simulation s = simulate(plan, seconds, false);
    CHECK(begins(s) == Seconds{0, 1, 5, 7});
    CHECK(s.step == 9);
    CHECK(s.devices[0].busy == 9);
    CHECK(path_of(s) == Path{0, 1, 2, 3});
  }
}

TEST_CASE("simulation: a device with one task at a time asks copy, update, compute") {
  // All three can start when task 0 is done.
  const Plan plan = plan_of({{TaskKind::forward, 0},
                             {TaskKind::forward, 0},
                             {TaskKind::update, 0, Stream::update, {0}},
                             {TaskKind::copy, 0, Stream::copy, {0}}});
  CHECK(begins(simulate(plan, {1, 1, 1, 1}, false)) == Seconds{0, 3, 2, 1});
}

TEST_CASE("simulation: a device does not idle for an urgent stream whose task cannot start yet") {
  const Plan plan = plan_of({{TaskKind::forward, 1},
                             {TaskKind::copy, 0, Stream::copy, {0}},
                             {TaskKind::forward, 0},
                             {TaskKind::forward, 0}});
  // The copy becomes possible at 3, within task 2, and goes before task 3.
  CHECK(begins(simulate(plan, {3, 1, 4, 1}, false)) == Seconds{0, 4, 0, 5});
}

TEST_CASE("simulation: what ends at the same moment is over before anything starts") {
  // Tasks 0 and 1 end together; the copy that waits for task 1 goes before device 0's own next task.
  const Plan plan = plan_of({{TaskKind::forward, 0},
                             {TaskKind::forward, 1},
                             {TaskKind::forward, 0},
                             {TaskKind::copy, 0, Stream::copy, {1}}});
  CHECK(begins(simulate(plan, {2, 2, 1, 1}, false)) == Seconds{0, 0, 3, 2});
}

TEST_CASE("simulation: tasks of a stream keep the plan's order even where a later one could start") {
  const Plan plan = plan_of(
      {{TaskKind::forward, 1}, {TaskKind::copy, 0, Stream::copy, {0}}, {TaskKind::copy, 0, Stream::copy}});
  CHECK(begins(simulate(plan, {5, 1, 1}, true)) == Seconds{0, 5, 6});
}

TEST_CASE("simulation: many devices, each stream without overlaps and after what it waits for") {
  // A ring: in every round each device computes, then fetches from its neighbour.
  constexpr int devices = 16, rounds = 20;
  std::vector<TaskSpec> specs;
  Seconds seconds;
  for (int round = 0; round < rounds; ++round) {
    const int first = static_cast<int>(specs.size());
    for (int d = 0; d < devices; ++d) {
      TaskSpec compute{TaskKind::forward, d};
      if (round > 0) compute.after = {first - devices + d};
      specs.push_back(compute);
      seconds.push_back(1 + (d * 7 + round * 3) % 5);
    }
    for (int d = 0; d < devices; ++d) {
      specs.push_back({TaskKind::copy, d, Stream::copy, {first + (d + 1) % devices}});
      seconds.push_back(1);
    }
  }
  const Plan plan = plan_of(specs);
  for (const bool concurrent : {true, false}) {
    const Simulation s = simulate(plan, seconds, concurrent);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      for (const int after : specs[t].after)
        CHECK(s.times[t].begin >= s.times[static_cast<std::size_t>(after)].end);
      for (std::size_t u = 0; u < t; ++u) {
        const bool same =
            specs[t].device == specs[u].device && (!concurrent || specs[t].stream == specs[u].stream);
        if (same && s.times[t].begin < s.times[u].end) CHECK(s.times[u].begin >= s.times[t].end);
      }
    }
    // The path has no gaps: a predicted task starts when something else ends.
    double end = 0;
    for (const PathStep& step : s.path) {
      const TaskTime& time = s.times[static_cast<std::size_t>(step.task)];
      CHECK(step.waited == 0);
      CHECK(time.begin == end);
      end = time.end;
    }
    CHECK(end == s.step);
  }
}

TEST_CASE("simulation: tasks without duration do not confuse the critical path") {
  const Plan plan = plan_of({{TaskKind::zero, 0},
                             {TaskKind::zero, 1},
                             {TaskKind::copy, 0, Stream::copy, {1}},
                             {TaskKind::forward, 0, Stream::compute, {2}},
                             {TaskKind::zero, 0}});
  for (const bool concurrent : {true, false}) {
    const Simulation s = simulate(plan, {0, 0, 0, 2, 0}, concurrent);
    CHECK(s.step == 2);
    CHECK(s.path.size() <= plan.tasks.size());
    const Path path = path_of(s);
    CHECK(std::count(path.begin(), path.end(), 3) == 1);
  }
}

TEST_CASE("simulation: wrong plans and times are refused") {
  CHECK_THROWS_AS(simulate(plan_of({{}, {}}), {1}, true), std::logic_error);
  CHECK_THROWS_AS(simulate(plan_of({{TaskKind::forward, 0, Stream::compute, {0}}}), {1}, true),
                  std::logic_error);
  CHECK_THROWS_AS(simulate(plan_of({{TaskKind::forward, 0, Stream::compute, {1}}, {}}), {1, 1}, true),
                  std::logic_error);
  CHECK_THROWS_AS(simulate(plan_of({{TaskKind::forward, 0, Stream::compute, {-1}}}), {1}, true),
                  std::logic_error);
  CHECK_THROWS_AS(simulate(plan_of({{}}), {-1}, true), std::logic_error);
  CHECK_THROWS_AS(simulate(plan_of({{}}), {std::nan("")}, true), std::logic_error);
  CHECK_THROWS_AS(simulate(plan_of({{}}), {INFINITY}, true), std::logic_error);
  CHECK_THROWS_AS(analyse(plan_of({{}}), {}, true), std::logic_error);
}

TEST_CASE("a measured timeline's critical path shows what it waited for") {
  const Plan plan = plan_of({{TaskKind::forward, 0},
                             {TaskKind::copy, 1, Stream::copy, {0}},
                             {TaskKind::forward, 1, Stream::compute, {1}},
                             {TaskKind::forward, 0}});
  const Simulation s = analyse(plan, {{0.5, 2}, {3, 4}, {4, 9}, {2, 3}}, false);
  CHECK(s.step == 9);
  CHECK(path_of(s) == Path{0, 1, 2});
  CHECK(s.path[0].waited == 0.5);
  CHECK(s.path[1].waited == 1);
  CHECK(s.path[2].waited == 0);
  CHECK(s.devices[0].busy == 2.5);
}

TEST_CASE("what a simulation says, as JSON and as text") {
  const Graph graph = graph_of({"conv1", "fc"});
  const Plan plan = plan_of({{TaskKind::zero, 0},
                             {TaskKind::forward, 0, Stream::compute, {}, 0},
                             {TaskKind::backward, 0, Stream::compute, {}, 1},
                             {TaskKind::reduce_update, 1, Stream::update, {2}, 1},
                             {TaskKind::publish, 0, Stream::update, {3}, 1},
                             {TaskKind::forward, 0, Stream::compute, {4}, 0}});
  const Simulation s = simulate(plan, {0, 0.2, 0.3, 0.25, 0.15, 0.1}, true);
  const json j = simulation_json(s, plan, graph, "a test machine");
  CHECK(j["step_seconds"].get<double>() == Approx(1.0));
  CHECK(j["images_per_second"].get<double>() == Approx(100));
  CHECK(j["devices"].size() == 2);
  CHECK(j["devices"][0]["busy"].get<double>() == Approx(0.75));
  CHECK(j["devices"][0]["communication"].get<double>() == Approx(0.15));
  CHECK(j["devices"][1]["compute"].get<double>() == 0);
  const json& path = j["critical_path"];
  CHECK(path["compute_seconds"].get<double>() == Approx(0.6));
  CHECK(path["communication_seconds"].get<double>() == Approx(0.4));
  CHECK(path["waiting_seconds"].get<double>() == Approx(0).margin(1e-9));
  // Both forward tasks of conv1 in one row.
  REQUIRE(path["rows"].size() == 5);
  CHECK(path["rows"][0]["seconds"].get<double>() == Approx(0.3));
  const std::string text = simulation_text(j);
  INFO(text);
  CHECK(text.find("predicted for a test machine: 1000.000 ms a step of 100 images, 100.0 images/s\n") == 0);
  CHECK(text.find("device 0: busy 75.0% (compute 60.0%, communication 15.0%)\n") != std::string::npos);
  CHECK(text.find("compute 60.0%, communication 40.0%, waiting 0.0%\n") != std::string::npos);
  CHECK(text.find("   30.0%  conv1 forward\n") != std::string::npos);
  CHECK(text.find("   25.0%  fc " + std::string(to_string(TaskKind::reduce_update)) + "\n") !=
        std::string::npos);
}

TEST_CASE("the text of many devices is one line, and of many layers five") {
  std::vector<TaskSpec> specs;
  for (int d = 0; d < 64; ++d) specs.push_back({TaskKind::forward, d, Stream::compute, {}, d % 8});
  for (int i = 1; i < 8; ++i) specs.push_back({TaskKind::forward, 0, Stream::compute, {}, i});
  const Plan plan = plan_of(specs);
  const Graph graph = graph_of({"a", "b", "c", "d", "e", "f", "g", "h"});
  const Simulation s = simulate(plan, Seconds(specs.size(), 1), true);
  const std::string text = simulation_text(simulation_json(s, plan, graph, "x"));
  INFO(text);
  CHECK(text.find("64 devices: busy 12.5 to 100.0% ") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 8);
}

TEST_CASE("a warning where more devices are slower than one") {
  CHECK(slower_warning(4, 0.010, 0.012).empty());
  CHECK(slower_warning(4, 0.012, 0.012).empty());
  CHECK(slower_warning(1, 0.012, 0.010).empty());
  CHECK(slower_warning(4, 0.012, 0.010) ==
        "warning: 4 devices are predicted to be slower than one: 12.000 ms a step instead of 10.000 ms; use "
        "fewer devices or a larger minibatch");
}

// --- Times from a model -------------------------------------------------------------------------

namespace {

DeviceModel simple_model() {
  DeviceModel model;
  model.flops = 1000;
  model.memory_bandwidth = 100;
  model.link_bandwidth = 10;
  model.host_bandwidth = 5;
  return model;
}

Task& add_task(Plan& plan, TaskKind kind, int device, std::vector<BufferUse> uses, double flops = 0) {
  Task task;
  task.kind = kind;
  task.device = device;
  task.uses = std::move(uses);
  task.flops = flops;
  for (const BufferUse& use : task.uses)
    task.bytes += use.bytes >= 0 ? use.bytes : plan.buffers[static_cast<std::size_t>(use.buffer)].bytes;
  plan.tasks.push_back(std::move(task));
  return plan.tasks.back();
}

}  // namespace

TEST_CASE("model: a task takes as long as the slower of arithmetic and memory") {
  Plan plan;
  const int a = add_buffer(plan, 0, 200), b = add_buffer(plan, 0, 300);
  add_task(plan, TaskKind::forward, 0, {{a, Access::read}, {b, Access::write}});
  add_task(plan, TaskKind::forward, 0, {{a, Access::read}, {b, Access::write}}, 8000);
  add_task(plan, TaskKind::forward, 0, {{a, Access::read}, {b, Access::write}}, 2000);
  DeviceModel model = simple_model();
  CHECK(model_seconds(plan, model) == Seconds{5, 8, 5});
  model.efficiency = 0.5;
  model.memory_efficiency = 0.25;
  model.task_overhead = 0.5;
  CHECK(model_seconds(plan, model) == Seconds{20.5, 20.5, 20.5});
  model.memory_efficiency = 1;
  CHECK(model_seconds(plan, model) == Seconds{5.5, 16.5, 5.5});
}

TEST_CASE("model: loads read the host's memory") {
  Plan plan;
  const int input = add_buffer(plan, 0, 50, BufferKind::input), image = add_buffer(plan, 0, 200);
  add_task(plan, TaskKind::load, 0, {{input, Access::read}, {image, Access::write}});
  CHECK(model_seconds(plan, simple_model()) == Seconds{10});
}

TEST_CASE("model: communication takes the bytes of other devices over the link, and the latency") {
  Plan plan;
  const int far = add_buffer(plan, 1, 400), near = add_buffer(plan, 0, 400), to = add_buffer(plan, 0, 400);
  add_task(plan, TaskKind::copy, 0, {{far, Access::read}, {to, Access::write}});
  add_task(
      plan, TaskKind::reduce, 0,
      {{far, Access::read, 0, 100, 100}, {near, Access::read, 0, 100, 100}, {to, Access::write, 0, 0, 100}});
  add_task(plan, TaskKind::copy, 0, {{near, Access::read}, {to, Access::write}});
  DeviceModel model = simple_model();
  model.link_latency = 0.25;
  CHECK(model_seconds(plan, model) == Seconds{40.25, 10.25, 8});
  model.link_efficiency = 0.5;
  CHECK(model_seconds(plan, model) == Seconds{80.25, 20.25, 8});
}

TEST_CASE("model: a link that is faster than memory does not hide the memory's time") {
  Plan plan;
  const int far = add_buffer(plan, 1, 100), to = add_buffer(plan, 0, 900);
  add_task(plan, TaskKind::copy, 0, {{far, Access::read}, {to, Access::write}});
  DeviceModel model = simple_model();
  model.link_bandwidth = 1000;
  CHECK(model_seconds(plan, model) == Seconds{9});
}

TEST_CASE("model: devices share a bus or the links between switches") {
  DeviceModel model = simple_model();
  CHECK(model.transfer_seconds(100, 0, 7, 8) == 10);
  model.shared_bus = true;
  CHECK(model.transfer_seconds(100, 0, 1, 2) == 20);
  CHECK(model.transfer_seconds(100, 0, 1, 8) == 80);
  model.shared_bus = false;
  model.switch_devices = 4;
  model.uplink_bandwidth = 20;
  CHECK(model.transfer_seconds(100, 0, 3, 8) == 10);
  CHECK(model.transfer_seconds(100, 3, 4, 8) == 20);
  CHECK(model.transfer_seconds(100, 4, 3, 8) == 20);
  CHECK(model.transfer_seconds(100, 0, 5, 6) == 10);  // two devices use the whole uplink of their switch
  model.uplink_bandwidth = 1000;
  CHECK(model.transfer_seconds(100, 3, 4, 8) == 10);  // no faster than the device's own link
}

// --- Files of models ----------------------------------------------------------------------------

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
  const TempFolder folder;
  write_file(folder / "m.json", j.dump());
  const DeviceModel m = read_device_model(folder / "m.json");
  CHECK(m.name == "test");
  CHECK(m.source == "a data sheet; a measurement");
  CHECK(m.flops == 1e12);
  CHECK(m.efficiency == 0.5);
  CHECK(m.memory_bandwidth == 1e11);
  CHECK(m.memory_efficiency == 0.25);
  CHECK(m.link_bandwidth == 1e10);
  CHECK(m.link_efficiency == 1);
  CHECK(m.link_latency == 1e-6);
  CHECK(m.host_bandwidth == 1e9);
  CHECK(m.task_overhead == 0);
  CHECK_FALSE(m.concurrent_streams);
  CHECK_FALSE(m.shared_bus);
  CHECK(m.switch_devices == 4);
  CHECK(m.uplink_bandwidth == 12345);
  // Short ones are GPUs without overheads.
  write_file(folder / "m.json", good_model().dump());
  CHECK(read_device_model(folder / "m.json").concurrent_streams);
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
      if (value.is_number()) CHECK(m.source.find(key) != std::string::npos);
    }
  }
  CHECK(seen.count("nvlink-8gpu") == 1);
  CHECK(seen.count("pcie-8gpu") == 1);
  CHECK(seen.count("k20-pcie-8gpu") == 1);
}

TEST_CASE("model file: wrong numbers") {
  contains(error_with("flops", 0), "key 'flops' expects a number of at least 1, not '0'");
  contains(error_with("flops", -5e12), "key 'flops' expects");
  contains(error_with("flops", 1e30), "key 'flops' expects");
  contains(error_with("flops", "fast"), "key 'flops' expects a number of at least 1, not '\"fast\"'");
  contains(error_with("memory_bandwidth", nullptr), "key 'memory_bandwidth' expects");
  contains(error_with("link_bandwidth", json::array({1, 2})), "key 'link_bandwidth' expects");
  contains(error_with("host_bandwidth", 0.5), "key 'host_bandwidth' expects");
  contains(error_with("efficiency", 1.01), "key 'efficiency' expects a number above 0, up to 1, not '1.01'");
  contains(error_with("memory_efficiency", 0), "key 'memory_efficiency' expects");
  contains(error_with("link_efficiency", true), "key 'link_efficiency' expects");
  contains(error_with("link_latency", -1e-6),
           "key 'link_latency' expects a number of seconds between 0 and 10");
  contains(error_with("task_overhead", 11), "key 'task_overhead' expects a number of seconds");
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
  contains(error_with("switch_devices", 0), "key 'switch_devices' expects an integer between 1 and 4096");
  contains(error_with("switch_devices", 2.5), "key 'switch_devices' expects an integer");
  contains(error_with("switch_devices", 1e300), "key 'switch_devices' expects an integer");
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
  json model = good_model();
  model["switch_devices"] = 4;
  model["uplink_bandwidth"] = 1e9;
  CHECK(error_of(model.dump()).empty());
  model["shared_bus"] = true;
  contains(error_of(model.dump()), "key 'shared_bus' and 'switch_devices' exclude each other");
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
  contains(error_of("{\"name\": \"\xff\xfe\"}"), "is no JSON");
  contains(error_of(std::string("{\"name\": \"a\0b\"}", 14)), "is no JSON");
  contains(error_of("[1, 2]"), "a device model is a JSON object");
  contains(error_of("3"), "a device model is a JSON object");
  contains(error_of(std::string(500000, '[')), "is nested too deeply");
  contains(error_of("{\"name\": " + std::string(500000, '[')), "is nested too deeply");
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

// --- Measured operations ------------------------------------------------------------------------

namespace {

/// What all runs of the tests' operations have seen.
struct Witness {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  int runs = 0;
  std::set<std::string> complaints;
};

/// Checks its memory, then fills what it may write with ones.
class CheckingOp : public PreparedOp {
 public:
  CheckingOp(Witness& witness, std::vector<TensorDesc> args, std::vector<Access> access,
             std::vector<std::int64_t> bytes, std::int64_t workspace, bool in_place = false)
      : witness_(witness), access_(std::move(access)), bytes_(std::move(bytes)), in_place_(in_place) {
    args_ = std::move(args);
    workspace_bytes_ = workspace;
  }

  void run(std::span<std::byte* const> pointers, std::byte* workspace) const override {
    std::set<std::string> wrong;
    if (pointers.size() != bytes_.size()) wrong.insert("number of arguments");
    for (std::size_t k = 0; k < pointers.size(); ++k) {
      if (reinterpret_cast<std::uintptr_t>(pointers[k]) % 64 != 0) wrong.insert("alignment");
      const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
      if (!std::all_of(pointers[k], pointers[k] + bytes_[k], is_zero)) wrong.insert("not zero");
    }
    if (in_place_ != (pointers[0] == pointers[1])) wrong.insert("place");
    for (std::size_t k = 0; k < pointers.size(); ++k) {
      if (access_[k] != Access::read) std::memset(pointers[k], 255, static_cast<std::size_t>(bytes_[k]));
    }
    if (workspace_bytes_ > 0) std::memset(workspace, 255, static_cast<std::size_t>(workspace_bytes_));
    const std::lock_guard lock(witness_.mutex);
    witness_.threads.insert(std::this_thread::get_id());
    ++witness_.runs;
    witness_.complaints.merge(wrong);
  }

 private:
  Witness& witness_;
  std::vector<Access> access_;
  std::vector<std::int64_t> bytes_;
  bool in_place_;
};

class ThrowingOp : public PreparedOp {
 public:
  void run(std::span<std::byte* const>, std::byte*) const override { throw RunError("it broke"); }
};

TensorDesc floats(std::int64_t count) { return {{count}, DataType::f32, nullptr}; }

void add_prepared(Plan& plan, OpDesc op, std::shared_ptr<const PreparedOp> prepared,
                  std::vector<BufferUse> uses) {
  Task task;
  task.op = std::move(op);
  task.prepared = std::move(prepared);
  task.uses = std::move(uses);
  plan.tasks.push_back(std::move(task));
}

/// A task whose arguments are buffers of their own, as `backend` wants them.
void add_real(Plan& plan, const Backend& backend, const OpDesc& op) {
  const std::vector<Argument> args = arguments(op);
  auto prepared = backend.prepare(op, LayoutHints(args.size()));
  std::vector<BufferUse> uses;
  for (std::size_t k = 0; k < args.size(); ++k) {
    const std::int64_t unsized_bytes = args[k].name == "step" ? step_block_bytes(3) : 64 * 8;
    const std::int64_t bytes = prepared->args()[k].bytes();
    uses.push_back({add_buffer(plan, 0, bytes > 0 ? bytes : unsized_bytes), args[k].access});
  }
  add_prepared(plan, op, std::move(prepared), std::move(uses));
}

}  // namespace

TEST_CASE("measure: operations get aligned zeros of the right size, their own place or the same") {
  const auto backend = make_cpu_backend(1);
  Witness witness;
  Plan plan;
  const int a = add_buffer(plan, 0, 40000), b = add_buffer(plan, 0, 40000), big = add_buffer(plan, 0, 400000),
            costs = add_buffer(plan, 0, 4096, BufferKind::costs);
  using Accesses = std::vector<Access>;
  // Two apart, the same in place, one that reads and writes ranges, one whose second argument has no size.
  add_prepared(plan, Scale{{10000}, 1},
               std::make_shared<CheckingOp>(witness, std::vector{floats(10000), floats(10000)},
                                            Accesses{Access::read, Access::write},
                                            std::vector<std::int64_t>{40000, 40000}, 1000),
               {{a, Access::read}, {b, Access::write}});
  add_prepared(plan, Scale{{10000}, 1},
               std::make_shared<CheckingOp>(witness, std::vector{floats(10000), floats(10000)},
                                            Accesses{Access::read, Access::write},
                                            std::vector<std::int64_t>{40000, 40000}, 0, true),
               {{a, Access::read}, {a, Access::write}});
  add_prepared(plan, Accumulate{{100}},
               std::make_shared<CheckingOp>(witness, std::vector{floats(100), floats(100)},
                                            Accesses{Access::read, Access::read_write},
                                            std::vector<std::int64_t>{400, 400}, 0),
               {{big, Access::read, 0, 4000, 400}, {big, Access::read_write, 0, 8000, 400}});
  add_prepared(plan, SquaresForward{{100}, 1},
               std::make_shared<CheckingOp>(
                   witness, std::vector{floats(100), TensorDesc{{0}, DataType::f64, nullptr}},
                   Accesses{Access::read, Access::read_write}, std::vector<std::int64_t>{400, 4096}, 0),
               {{big, Access::read, 0, 0, 400}, {costs, Access::read_write}});
  for (const int devices : {1, 3}) {
    witness.threads.clear();
    witness.runs = 0;
    const std::vector<double> seconds = measure_seconds(plan, *backend, devices);
    REQUIRE(seconds.size() == 4);
    for (const double s : seconds) CHECK(s > 0);
    CHECK(witness.complaints == std::set<std::string>{});
    CHECK(witness.threads.size() == static_cast<std::size_t>(devices));
    CHECK(witness.runs >= 3 * 4 * devices);
    CHECK(witness.runs <= 9 * 4 * devices);
  }
}

TEST_CASE("measure: equal operations are measured once, different ones apart") {
  const auto backend = make_cpu_backend(1);
  Plan plan;
  for (const std::int64_t n : {1 << 18, 1 << 18, 64, 1 << 18}) add_real(plan, *backend, Scale{{1, n}, 2});
  const std::vector<double> seconds = measure_seconds(plan, *backend, 2);
  CHECK(seconds[0] == seconds[1]);
  CHECK(seconds[0] == seconds[3]);
  CHECK(seconds[2] != seconds[0]);
}

TEST_CASE("measure: settings that do not show in the arguments' shapes tell operations apart") {
  const auto backend = make_cpu_backend(1);
  Plan plan;
  WindowNorm norm;
  norm.n = 2;
  norm.c = 4;
  norm.h = norm.w = 12;
  norm.scale = 1;
  norm.power = 0.5F;
  for (const std::int64_t size : {3, 9}) {
    norm.size = size;
    add_real(plan, *backend, WindowNormForward{norm});
  }
  const std::vector<double> seconds = measure_seconds(plan, *backend, 1);
  CHECK(seconds[0] != seconds[1]);
}

TEST_CASE("measure: real operations with indices, flags and workspaces") {
  const auto backend = make_cpu_backend(1);
  Plan plan;
  ConvGeometry g;
  g.n = 2;
  g.c = 3;
  g.h = g.w = 9;
  g.k = 8;
  g.filter = 3;
  g.oh = g.ow = 7;
  add_real(plan, *backend, ConvForward{g});
  add_real(plan, *backend, ConvBackwardWeights{g});
  PoolGeometry p;
  p.n = 2;
  p.c = 8;
  p.h = p.w = 7;
  p.oh = p.ow = 4;
  p.size = 3;
  p.stride = 2;
  p.start = -1;
  add_real(plan, *backend, PoolForward{p, true});
  add_real(plan, *backend, PoolBackward{p});
  add_real(plan, *backend, SoftmaxForward{2, 10});
  add_real(plan, *backend, LogregForward{2, 10, 5, 1});
  add_real(plan, *backend, SoftmaxLogregBackward{2, 10, 1});
  Update update;
  update.what = floats(1000);
  update.images = 2;
  add_real(plan, *backend, update);
  add_real(plan, *backend, Dropout{{2, 100}, 0.5F, 2.0F, 7, 0});
  for (const double s : measure_seconds(plan, *backend, 2)) CHECK(s > 0);
}

TEST_CASE("measure: what an operation throws arrives, and nobody waits for ever") {
  const auto backend = make_cpu_backend(1);
  Plan plan;
  add_real(plan, *backend, Scale{{1, 100}, 2});
  add_prepared(plan, FillZero{}, std::make_shared<ThrowingOp>(), {});
  add_real(plan, *backend, Scale{{1, 200}, 2});
  for (const int devices : {1, 4})
    CHECK(message_of<RunError>([&] { measure_seconds(plan, *backend, devices); }) == "it broke");
}

TEST_CASE("measure: what does not fit and what is not prepared is refused") {
  const auto backend = make_cpu_backend(1);
  Plan plan;
  const int huge = add_buffer(plan, 0, std::int64_t{1} << 50);
  add_prepared(plan, FillZero{}, std::make_shared<ThrowingOp>(), {{huge, Access::write}});
  contains(message_of<DeviceError>([&] { measure_seconds(plan, *backend, 1); }), "use a smaller --mini");
  CHECK_THROWS_AS(measure_seconds(plan_of({{}}), *backend, 1), std::logic_error);
  CHECK_THROWS_AS(measure_seconds(Plan{}, *backend, 0), std::logic_error);
  CHECK(measure_seconds(Plan{}, *backend, 2).empty());
}

// --- Traces -------------------------------------------------------------------------------------

namespace {

Plan traced_plan() {
  Plan plan = plan_of({{TaskKind::forward, 0, Stream::compute, {}, 0},
                       {TaskKind::copy, 1, Stream::copy, {0}, 0},
                       {TaskKind::backward, 1, Stream::compute, {1}, 1},
                       {TaskKind::reduce_update, 0, Stream::update, {2}, -1}});
  plan.tasks[2].flops = 12345;
  plan.tasks[2].bytes = 678;
  plan.tasks[2].pass = 3;
  plan.tasks[2].microbatch = 2;
  return plan;
}

std::vector<json> events(const json& trace, const std::string& phase) {
  std::vector<json> found;
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] == phase) found.push_back(e);
  }
  return found;
}

}  // namespace

TEST_CASE("trace: a row for each device and stream, and each task with its times and numbers") {
  const Plan plan = traced_plan();
  const std::string text =
      chrome_trace(plan, graph_of({"conv1", "fc"}),
                   {{0, 0.001}, {0.001, 0.0015}, {0.0015, 0.004}, {0.004, 0.0040005}}, {"cpu 0"});
  const json trace = json::parse(text);
  std::set<std::string> processes, threads;
  for (const json& e : events(trace, "M")) {
    if (e["name"] == "process_name") processes.insert(e["args"]["name"].get<std::string>());
    if (e["name"] == "thread_name")
      threads.insert(std::to_string(e["pid"].get<int>()) + " " + e["args"]["name"].get<std::string>());
  }
  CHECK(processes == std::set<std::string>{"cpu 0", "device 1"});
  CHECK(threads == std::set<std::string>{std::string("1 ") + to_string(Stream::compute),
                                         std::string("1 ") + to_string(Stream::update),
                                         std::string("2 ") + to_string(Stream::compute),
                                         std::string("2 ") + to_string(Stream::copy)});
  const std::vector<json> tasks = events(trace, "X");
  REQUIRE(tasks.size() == 4);
  CHECK(tasks[0]["name"] == "conv1 zero");
  CHECK(tasks[0]["cat"] == to_string(TaskKind::forward));
  CHECK(tasks[0]["ts"] == 0);
  CHECK(tasks[0]["dur"] == 1000);
  CHECK(tasks[2]["ts"] == 1500);
  CHECK(tasks[2]["dur"] == 2500);
  CHECK(tasks[2]["args"] == json{{"pass", 3}, {"microbatch", 2}, {"flops", 12345.0}, {"bytes", 678}});
  CHECK(tasks[3]["name"] == "zero");
  CHECK(tasks[3]["dur"] == 0.5);
  // No two rows have the same number, and tasks stand on the row of their device and stream.
  std::set<int> rows;
  for (const json& e : tasks) rows.insert(e["tid"].get<int>());
  CHECK(rows.size() == 4);
  CHECK(tasks[0]["pid"] == tasks[3]["pid"]);
  CHECK(tasks[1]["pid"] == tasks[2]["pid"]);
  // Arrows from device to device only: 0 to 1, and 2 to 3.
  const std::vector<json> starts = events(trace, "s"), ends = events(trace, "f");
  REQUIRE(starts.size() == 2);
  REQUIRE(ends.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(starts[i]["id"] == ends[i]["id"]);
    CHECK(starts[i]["ts"].get<double>() <= ends[i]["ts"].get<double>());
  }
  CHECK(starts[0]["tid"] == tasks[0]["tid"]);
  CHECK(ends[0]["tid"] == tasks[1]["tid"]);
  CHECK(starts[0]["id"] != starts[1]["id"]);
}

TEST_CASE("trace: several steps follow each other or stand where they were") {
  const Plan plan = plan_of({{}, {}});
  const Graph graph;
  ChromeTrace trace;
  CHECK(json::parse(trace.str())["traceEvents"].empty());
  trace.add_step(plan, graph, {{0, 1}, {1, 2}});
  CHECK(trace.end() == 2);
  trace.add_step(plan, graph, {{0, 1}, {1, 2}});
  trace.add_step(plan, graph, {{0, 1}, {1, 2}}, 10);
  CHECK(trace.end() == 12);
  std::vector<double> starts;
  for (const json& e : events(json::parse(trace.str()), "X")) starts.push_back(e["ts"].get<double>());
  CHECK(starts == Seconds{0, 1e6, 2e6, 3e6, 10e6, 11e6});
  CHECK_THROWS_AS(trace.add_step(plan, graph, {{0, 1}}), std::logic_error);
}

TEST_CASE("trace: neighbours do not overlap after rounding") {
  const Plan plan = plan_of({{}, {}, {}, {}});
  const double t = 1e-3 / 3;
  const json trace =
      json::parse(chrome_trace(plan, {}, {{0, t}, {t, 2 * t}, {2 * t, 3 * t}, {3 * t, 4 * t}}));
  double end = 0;
  for (const json& e : events(trace, "X")) {
    CHECK(e["ts"].get<double>() == Approx(end).margin(1e-9));
    end = e["ts"].get<double>() + e["dur"].get<double>();
  }
}

TEST_CASE("trace: a layer's name may hold any bytes") {
  const Plan plan = plan_of({{TaskKind::forward, 0, Stream::compute, {}, 0}});
  const json trace = json::parse(chrome_trace(plan, graph_of({"a\"\\\xff\n"}), {{0, 1}}));
  CHECK(events(trace, "X").size() == 1);
}

TEST_CASE("trace: a simulation's times make a trace") {
  const Plan plan = traced_plan();
  const Simulation s = simulate(plan, {1, 2, 3, 4}, true);
  const json trace = json::parse(chrome_trace(plan, graph_of({"conv1", "fc"}), s.times));
  CHECK(events(trace, "X")[3]["ts"] == 6e6);
}

TEST_CASE("trace: the file appears whole or not at all") {
  const TempFolder folder;
  ChromeTrace trace;
  trace.add_step(plan_of({{}}), {}, {{0, 1}});
  const std::string file = folder / "trace.json";
  write_file(file, "old");
  trace.write(file);
  CHECK(read_file(file) == trace.str());
  const auto entries = [&] { return std::distance(std::filesystem::directory_iterator(folder.path()), {}); };
  CHECK(entries() == 1);
  contains(message_of<RunError>([&] { trace.write(folder / "none/trace.json"); }),
           "none/trace.json: cannot be written: No such file");
  contains(message_of<RunError>([&] { trace.write(folder.path()); }), "it is no regular file");
  contains(message_of<RunError>([&] { trace.write("/dev/null"); }), "it is no regular file");
  CHECK(entries() == 1);
}

}  // namespace convnet::test
