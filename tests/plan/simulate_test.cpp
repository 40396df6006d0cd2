// Predicted timelines: plans whose course is known, and times from a model of the machine.
#include "convnet/plan/simulate.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "convnet/plan/links.h"
#include "tests/catch.h"
#include "tests/plan/hand_made_plan.h"

using namespace convnet;
using nlohmann::json;

namespace convnet::test {
namespace {

using Seconds = Table<TaskId, double>;
using Path = std::vector<int>;

Seconds begins(const Simulation& s) {
  Seconds times;
  for (const TaskTime& time : s.times) times.push_back(time.begin);
  return times;
}

Path path_of(const Simulation& s) {
  Path tasks;
  for (const PathStep& step : s.path) tasks.push_back(step.task.value());
  return tasks;
}

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
                             {TaskKind::reduce_scatter_update, 0, Stream::update, {0}},
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
      for (const int after : specs[t].after) CHECK(s.times[t].begin >= s.times[TaskId(after)].end);
      for (std::size_t u = 0; u < t; ++u) {
        const bool same =
            specs[t].device == specs[u].device && (!concurrent || specs[t].stream == specs[u].stream);
        if (same && s.times[t].begin < s.times[u].end) CHECK(s.times[u].begin >= s.times[t].end);
      }
    }
    // The path has no gaps: a predicted task starts when something else ends.
    double end = 0;
    for (const PathStep& step : s.path) {
      const TaskTime& time = s.times[step.task];
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
                             {TaskKind::reduce_scatter_update, 1, Stream::update, {2}, 1},
                             {TaskKind::all_gather, 0, Stream::update, {3}, 1},
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
  CHECK(text.find("   25.0%  fc " + std::string(to_string(TaskKind::reduce_scatter_update)) + "\n") !=
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

namespace {

DeviceModel simple_model() {
  DeviceModel model;
  model.flops.fp32 = 1000;
  model.memory_bandwidth = 100;
  model.link_bandwidth = {10};
  model.host_bandwidth = 5;
  return model;
}

Task& add_task(Plan& plan, TaskKind kind, int device, std::vector<BufferUse> uses, double flops = 0) {
  Task task;
  task.kind = kind;
  task.device = DeviceId(device);
  task.uses = std::move(uses);
  task.flops = flops;
  for (const BufferUse& use : task.uses)
    task.bytes += use.bytes >= 0 ? use.bytes : plan.buffers[use.buffer].bytes;
  plan.tasks.push_back(std::move(task));
  return plan.tasks.back();
}

/// The seconds of each task in a simulated step.
Seconds durations(const Plan& plan, const DeviceModel& model) {
  Seconds seconds;
  for (const TaskTime& time : simulate(plan, model, Precision::fp32).times)
    seconds.push_back(time.end - time.begin);
  return seconds;
}

}  // namespace

TEST_CASE("model: a task takes as long as the slower of arithmetic and memory") {
  Plan plan;
  const BufferId a = add_buffer(plan, 0, 200), b = add_buffer(plan, 0, 300);
  add_task(plan, TaskKind::forward, 0, {{a, Access::read}, {b, Access::write}});
  add_task(plan, TaskKind::forward, 0, {{a, Access::read}, {b, Access::write}}, 8000);
  add_task(plan, TaskKind::forward, 0, {{a, Access::read}, {b, Access::write}}, 2000);
  DeviceModel model = simple_model();
  CHECK(durations(plan, model) == Seconds{5, 8, 5});
  model.efficiency.fp32 = 0.5;
  model.memory_efficiency = 0.25;
  model.task_overhead = 0.5;
  CHECK(durations(plan, model) == Seconds{20.5, 20.5, 20.5});
  model.memory_efficiency = 1;
  CHECK(durations(plan, model) == Seconds{5.5, 16.5, 5.5});
}

TEST_CASE("model: loads read the host's memory") {
  Plan plan;
  const BufferId input = add_buffer(plan, 0, 50, BufferKind::input), image = add_buffer(plan, 0, 200);
  add_task(plan, TaskKind::load, 0, {{input, Access::read}, {image, Access::write}});
  CHECK(durations(plan, simple_model()) == Seconds{10});
}

TEST_CASE("model: communication takes the bytes of other devices over the link, and the latency") {
  Plan plan;
  const BufferId far = add_buffer(plan, 1, 400), near = add_buffer(plan, 0, 400),
                 to = add_buffer(plan, 0, 400);
  add_task(plan, TaskKind::copy, 0, {{far, Access::read}, {to, Access::write}});
  add_task(
      plan, TaskKind::reduce, 0,
      {{far, Access::read, 0, 100, 100}, {near, Access::read, 0, 100, 100}, {to, Access::write, 0, 0, 100}});
  add_task(plan, TaskKind::copy, 0, {{near, Access::read}, {to, Access::write}});
  DeviceModel model = simple_model();
  model.link_latency = 0.25;
  CHECK(durations(plan, model) == Seconds{40.25, 10.25, 8});
  model.link_efficiency = 0.5;
  CHECK(durations(plan, model) == Seconds{80.25, 20.25, 8});
}

TEST_CASE("model: what comes from another switch comes later") {
  Plan plan;
  const BufferId other_switch = add_buffer(plan, 2, 400), near = add_buffer(plan, 0, 400),
                 to = add_buffer(plan, 1, 400);
  add_task(plan, TaskKind::copy, 1, {{other_switch, Access::read}, {to, Access::write}});
  add_task(plan, TaskKind::copy, 1, {{near, Access::read}, {to, Access::write}});
  add_task(
      plan, TaskKind::reduce, 1,
      {{near, Access::read, 0, 100, 100}, {other_switch, Access::read, 0, 100, 100}, {to, Access::write}});
  DeviceModel model = simple_model();
  model.link_latency = 0.25;
  model.switches = {{{2}, {20}, 0.5}};
  const Seconds seconds = durations(plan, model);
  CHECK(seconds[TaskId(0)] - seconds[TaskId(1)] == 0.25);
  CHECK(seconds[TaskId(2)] == 20.5);
}

TEST_CASE("model: a link that is faster than memory does not hide the memory's time") {
  Plan plan;
  const BufferId far = add_buffer(plan, 1, 100), to = add_buffer(plan, 0, 900);
  add_task(plan, TaskKind::copy, 0, {{far, Access::read}, {to, Access::write}});
  DeviceModel model = simple_model();
  model.link_bandwidth = {1000};
  CHECK(durations(plan, model) == Seconds{9});
}

TEST_CASE("model: a link carries all that is read at the same time") {
  DeviceModel model = simple_model();  // 10 bytes a second
  const auto all = [&](const std::vector<Transfer>& transfers) {
    return transfer_seconds(model, transfers, 8);
  };
  const DeviceId d0(0), d1(1), d3(3), d4(4), d5(5);
  CHECK(all({}) == 0);
  CHECK(all({{d1, d0, 100}}) == 10);
  CHECK(all({{d1, d0, 100}, {d0, d1, 100}}) == 10);  // both ways at once
  CHECK(all({{d1, d0, 100}, {d3, d4, 100}}) == 10);
  CHECK(all({{d1, d0, 100}, {d1, d4, 50}}) == 15);  // into one device
  CHECK(all({{d1, d0, 100}, {d3, d0, 50}}) == 15);  // out of one
  model.shared_bus = true;
  CHECK(all({{d1, d0, 100}, {d3, d4, 100}}) == 20);
  model.shared_bus = false;
  model.switches = {{{4}, {20}}};
  CHECK(all({{d3, d0, 100}}) == 10);
  CHECK(all({{d4, d0, 100}}) == 10);  // no faster than its own link
  CHECK(all({{d4, d0, 100}, {d5, d1, 200}}) == 20);
  CHECK(all({{d4, d0, 100}, {d5, d1, 100}, {DeviceId(6), d3, 100}}) == 15);
  CHECK(all({{d0, d4, 100}, {d1, d5, 100}, {d3, DeviceId(6), 100}}) == 15);
  model.link_efficiency = 0.5;
  CHECK(all({{d4, d0, 100}}) == 20);
}

TEST_CASE("model: transfers share links for as long as they pass them together") {
  Plan plan;
  const auto copy = [&](int from, int to, std::int64_t bytes) {
    const BufferId source = add_buffer(plan, from, bytes), target = add_buffer(plan, to, bytes);
    add_task(plan, TaskKind::copy, to, {{source, Access::read}, {target, Access::write}});
  };
  DeviceModel model = simple_model();
  const auto ends = [&] {
    std::vector<double> all;
    for (const TaskTime& time : simulate(plan, model, Precision::fp32).times) all.push_back(time.end);
    return all;
  };
  for (int reader = 1; reader < 4; ++reader) copy(0, reader, 100);  // three read of device 0
  CHECK(ends() == std::vector<double>{30, 30, 30});
  // One of them is done early; the others then have half of the link each, and a third of it before.
  plan.tasks.clear();
  copy(0, 1, 100);
  copy(0, 2, 50);
  copy(0, 3, 100);
  copy(4, 5, 70);  // passes other links
  CHECK(ends() == std::vector<double>{25, 15, 25, 7});
  // A device that reads from two others receives both at the same time.
  plan.tasks.clear();
  const BufferId left = add_buffer(plan, 1, 100), right = add_buffer(plan, 2, 40),
                 sum = add_buffer(plan, 0, 100);
  add_task(plan, TaskKind::reduce, 0, {{left, Access::read}, {right, Access::read}, {sum, Access::write}});
  CHECK(ends() == std::vector<double>{14});
  model.shared_bus = true;
  copy(3, 4, 20);
  CHECK(ends() == std::vector<double>{16, 6});
}

TEST_CASE("model: CPU devices begin messages while earlier ones go on, and end them in order") {
  Plan plan;
  const auto message = [&](int from, int to, std::int64_t bytes) {
    const BufferId source = add_buffer(plan, from, bytes), landing = add_buffer(plan, to, bytes);
    const TaskId send = plan.tasks.next_id();
    add_task(plan, TaskKind::send, from, {{source, Access::read}});
    const TaskId receive = plan.tasks.next_id();
    add_task(plan, TaskKind::receive, to, {{landing, Access::write}});
    plan.tasks[send].stream = Stream::send;
    plan.tasks[send].partner = receive;
    plan.tasks[receive].stream = Stream::receive;
    plan.tasks[receive].partner = send;
  };
  message(0, 2, 100);
  message(1, 2, 60);
  add_task(plan, TaskKind::forward, 2, {}, 1000);
  plan.tasks[TaskId(4)].after = {TaskId(3)};
  const auto end = [&](int task) {
    return simulate(plan, simple_model(), Precision::fp32).times[TaskId(task)].end;
  };
  plan.target = "cuda";
  CHECK(end(1) == 11);  // a second to read what is sent, ten to move it
  CHECK(end(3) == 17);
  // Both share the link of their receiver; the second one has arrived after 13 seconds.
  plan.target = "cpu";
  CHECK(end(1) == 17);
  CHECK(end(3) == 17);
  CHECK(path_of(simulate(plan, simple_model(), Precision::fp32)) == Path{2, 3, 4});
}

TEST_CASE("model: switches of several levels and links of several speeds") {
  DeviceModel model = simple_model();
  model.link_bandwidth = {10, 40};                            // device 0 is slower than all others
  model.switches = {{{2, 3}, {30}, 0.5}, {{5}, {8, 16}, 2}};  // 0-1, 2-4, 5-7, 8-10, ...; 0-4, 5-9, ...
  const DeviceId d0(0), d1(1), d2(2), d4(4), d5(5), d7(7), d8(8);
  const auto seconds = [&](DeviceId from, DeviceId to) {
    return transfer_seconds(model, {{to, from, 120}}, 11);
  };
  CHECK(seconds(d0, d1) == 12);
  CHECK(seconds(d2, d4) == 3);
  CHECK(seconds(d1, d2) == 4);
  CHECK(seconds(d4, d5) == 15);
  CHECK(seconds(d5, d8) == 4);
  CHECK(model.latency(d2, d4) == model.link_latency);
  CHECK(model.latency(d1, d2) == 0.5);
  CHECK(model.latency(d1, d7) == 2);
  CHECK(model.switches[0].group(d7) == 2);
  CHECK(model.switches[1].group(d7) == 1);
}

}  // namespace convnet::test
