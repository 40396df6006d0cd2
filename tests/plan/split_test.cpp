// Plans for several processes: each touches its own memory only, and every message has two ends.
#include "convnet/plan/split.h"
#include "convnet/plan/verify.h"

#include <set>

#include "tests/catch.h"
#include "tests/plan/planned_net.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Returns why verify() refuses the plan, or "".
std::string refusal(const Plan& plan, const Graph& graph) {
  try {
    verify(plan, graph);
  } catch (const std::logic_error& e) {
    return e.what();
  }
  return "";
}

PlannedNet net_of_processes(const std::string& config, int data_parallel, const std::vector<int>& processes) {
  return PlannedNet(config, true, false, data_parallel, Precision::fp32, "cpu", Topology({}, processes));
}

std::vector<TaskId> messages(const Plan& plan, TaskKind kind) {
  std::vector<TaskId> found;
  for (const TaskId t : plan.tasks.ids()) {
    if (plan.tasks[t].kind == kind) found.push_back(t);
  }
  return found;
}

}  // namespace

TEST_CASE("every plan of configs is right in several processes") {
  for (const auto& [config, data] : config_cases()) {
    for (const std::vector<int>& processes : {std::vector<int>{1, 1, 1, 1}, {2, 2}, {1, 3}, {4}}) {
      const PlannedNet alone(config, true, false, 4);
      const PlannedNet net = net_of_processes(config, 4, processes);
      for (const std::int64_t images : {16, 9, 3}) {
        for (const Phase phase : {Phase::train, Phase::test}) {
          INFO(config << " in " << processes.size() << " processes, " << images << " images");
          const Plan& plan = net.plans->plan(phase, images);
          CHECK(refusal(plan, net.graph).empty());
          // Beside messages, the tasks are those of one process.
          std::vector<std::string> tasks, tasks_alone;
          for (const Task& task : plan.tasks) {
            if (!is_message(task.kind)) tasks.push_back(describe(plan, task, net.graph));
          }
          const Plan& plan_alone = alone.plans->plan(phase, images);
          for (const Task& task : plan_alone.tasks)
            tasks_alone.push_back(describe(plan_alone, task, alone.graph));
          CHECK(tasks == tasks_alone);
          // Tests of replicas need none.
          if (phase == Phase::train) CHECK(messages(plan, TaskKind::send).empty() == (processes.size() == 1));
          if (processes.size() == 1) CHECK(messages(plan, TaskKind::send).empty());
        }
      }
    }
  }
}

TEST_CASE("updates and messages of several layers are described by what they are for") {
  const PlannedNet net = net_of_processes("lenet", 2, {1, 1});
  const Plan& plan = net.plans->plan(Phase::train, 16);
  std::set<std::string> updates, received;
  for (const Task& task : plan.tasks) {
    if (task.node.exists()) continue;
    if (task.kind == TaskKind::reduce_scatter_update) updates.insert(describe(plan, task, net.graph));
    if (task.kind == TaskKind::receive) received.insert(describe(plan, task, net.graph));
  }
  CHECK(updates.contains("conv2, conv1 reduce-scatter+update: update, device 0"));
  CHECK(received.contains("d fc2.biases, d fc1.weights.pool2 receive, device 1"));
  CHECK(
      received.contains("d fc1.biases, d conv2.weights.pool1, d conv2.biases and 1 more receive, device 1"));
}

TEST_CASE("plans of files that place layers on devices are right with a process for each device") {
  for (const auto& [config, data] : config_cases()) {
    PlannedNet one(config);
    const int devices = one.graph.gpu_count();
    if (devices == 1) continue;
    PlannedNet net = net_of_processes(config, 0, std::vector<int>(static_cast<std::size_t>(devices), 1));
    for (const Phase phase : {Phase::train, Phase::test}) {
      INFO(config);
      CHECK(refusal(net.plan(phase, 16), net.graph).empty());
      if (phase == Phase::train) CHECK_FALSE(messages(net.plan(phase, 16), TaskKind::send).empty());
    }
  }
}

TEST_CASE("what a process has received serves all its devices") {
  PlannedNet apart = net_of_processes("wrn-16-4", 4, {1, 1, 1, 1});
  PlannedNet pairs = net_of_processes("wrn-16-4", 4, {2, 2});
  const auto bytes = [](const Plan& plan) {
    std::int64_t sum = 0;
    for (const TaskId t : messages(plan, TaskKind::send)) {
      for (const BufferUse& use : plan.tasks[t].uses) sum += bytes_of(plan, use);
    }
    return sum;
  };
  // Of three processes with the weights of a fourth, two are one now, and so with the gradients' owners.
  CHECK(bytes(pairs.plan(Phase::train, 16)) < bytes(apart.plan(Phase::train, 16)) * 3 / 5);
  // No landing buffer is written twice with the same contents.
  const Plan& plan = pairs.plan(Phase::train, 16);
  std::set<std::tuple<BufferId, std::int64_t, std::int64_t, int, int>> sent;
  for (const TaskId t : messages(plan, TaskKind::send)) {
    const int to = plan.topology.process(plan.tasks[plan.tasks[t].partner].device);
    for (const BufferUse& use : plan.tasks[t].uses)
      CHECK(sent.insert({use.buffer, use.begin, use.bytes, use.version, to}).second);
  }
}

TEST_CASE("verify finds messages that do not fit together") {
  PlannedNet net = net_of_processes("lenet", 3, {1, 2});
  const Plan& good = net.plan(Phase::train, 7);
  REQUIRE(refusal(good, net.graph).empty());
  const std::vector<TaskId> sends = messages(good, TaskKind::send);
  REQUIRE(sends.size() > 4);
  for (const TaskId t : sends) {
    INFO(describe(good, good.tasks[t], net.graph));
    const TaskId other = good.tasks[t].partner;
    Plan bad = good;
    bad.tasks[t].partner = TaskId();
    CHECK(refusal(bad, net.graph).find("without its other end") != std::string::npos);
    bad = good;
    bad.tasks[other].partner = other;
    CHECK_FALSE(refusal(bad, net.graph).empty());
    bad = good;
    bad.tasks[t].uses.pop_back();
    bad.tasks[t].form.change().args.pop_back();
    CHECK(refusal(bad, net.graph).find("other pieces") != std::string::npos);
    bad = good;
    bad.tasks[t].stream = Stream::copy;
    CHECK_FALSE(refusal(bad, net.graph).empty());
    bad = good;
    bad.tasks[other].device = bad.tasks[t].device;
    CHECK_FALSE(refusal(bad, net.graph).empty());
  }
  // Two messages between the same devices that are received the other way round.
  int crossed = 0;
  for (std::size_t i = 0; i + 1 < sends.size(); ++i) {
    for (std::size_t k = i + 1; k < sends.size(); ++k) {
      const auto ends = [&](TaskId t) {
        return std::pair(good.tasks[t].device, good.tasks[good.tasks[t].partner].device);
      };
      if (ends(sends[i]) != ends(sends[k])) continue;
      Plan bad = good;
      std::swap(bad.tasks[sends[i]].partner, bad.tasks[sends[k]].partner);
      std::swap(bad.tasks[good.tasks[sends[i]].partner].partner,
                bad.tasks[good.tasks[sends[k]].partner].partner);
      CHECK_FALSE(refusal(bad, net.graph).empty());
      ++crossed;
    }
  }
  CHECK(crossed > 3);
}

TEST_CASE("verify finds a task that reads another process's memory") {
  PlannedNet net("lenet", true, false, 3);
  Plan plan = net.plan(Phase::train, 7);
  plan.topology = Topology({}, {1, 2});
  CHECK(refusal(plan, net.graph).find("of another process") != std::string::npos);
}
