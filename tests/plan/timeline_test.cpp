// Trace files: rows, tasks, arrows, several steps, and files that cannot be written.
#include "convnet/plan/timeline.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "convnet/base/error.h"
#include "convnet/plan/simulate.h"
#include "tests/catch.h"
#include "tests/plan/hand_made_plan.h"
#include "tests/temp_folder.h"

using namespace convnet;
using nlohmann::json;

namespace convnet::test {
namespace {

/// The trace of a single step.
std::string chrome_trace(const Plan& plan, const Graph& graph, const TaskTimes& times,
                         Table<DeviceId, std::string> devices = {}) {
  ChromeTrace trace(std::move(devices));
  trace.add_step(plan, graph, times);
  return trace.str();
}

Plan traced_plan() {
  Plan plan = plan_of({{TaskKind::forward, 0, Stream::compute, {}, 0},
                       {TaskKind::copy, 1, Stream::copy, {0}, 0},
                       {TaskKind::backward, 1, Stream::compute, {1}, 1},
                       {TaskKind::reduce_scatter_update, 0, Stream::update, {2}, -1}});
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
  CHECK(starts == std::vector<double>{0, 1e6, 2e6, 3e6, 10e6, 11e6});
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
  const auto error = [&](const std::string& to) { return message_of<RunError>([&] { trace.write(to); }); };
  CHECK(error(folder / "none/trace.json") ==
        folder / "none/trace.json: cannot be written: No such file or directory");
  CHECK(error(folder.path()) == folder.path() + ": cannot be written: Is a directory");
  CHECK(entries() == 1);
}

}  // namespace convnet::test
