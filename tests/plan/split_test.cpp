// Plans for several processes: each touches its own memory only, and every message has two ends.
#include "convnet/plan/split.h"
#include "convnet/plan/verify.h"

#include <algorithm>
#include <set>

#include "convnet/plan/message_groups.h"
#include "convnet/plan/order.h"
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

bool only_copies(const Task& task) {
  return !is_message(task.kind) && std::holds_alternative<CopyRuns>(*task.op);
}

std::vector<std::string> tasks_of(const Plan& plan, const Graph& graph) {
  std::vector<std::string> all;
  for (const Task& task : plan.tasks) {
    if (!is_message(task.kind) && !only_copies(task)) all.push_back(describe(plan, task, graph));
  }
  return all;
}

/// The groups of messages of each process, as send tasks, by number; see begins_of_groups().
std::vector<std::vector<std::set<TaskId>>> groups_of(const Plan& plan) {
  std::vector<std::vector<std::set<TaskId>>> groups(static_cast<std::size_t>(plan.topology.processes()));
  std::vector<bool> goes_on(groups.size(), false);
  const std::set<TaskId> begins = begins_of_groups(plan);
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    const auto process = static_cast<std::size_t>(plan.topology.process(task.device));
    if (begins.contains(t)) goes_on.assign(goes_on.size(), false);
    if (is_message(task.kind)) {
      if (!goes_on[process]) groups[process].emplace_back();
      groups[process].back().insert(task.kind == TaskKind::send ? t : task.partner);
    }
    goes_on[process] = is_message(task.kind);
  }
  return groups;
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
          // Beside messages and copies, the tasks are those of one process.
          CHECK(tasks_of(plan, net.graph) == tasks_of(alone.plans->plan(phase, images), alone.graph));
          // Tests of replicas need none.
          if (phase == Phase::train) CHECK(messages(plan, TaskKind::send).empty() == (processes.size() == 1));
          if (processes.size() == 1) CHECK(messages(plan, TaskKind::send).empty());
        }
      }
    }
  }
}

TEST_CASE("layers account for the bytes that their weights and gradients take between processes") {
  const auto fetched_for_layers = [](const Plan& plan) {
    std::int64_t bytes = 0;
    for (const Task& task : plan.tasks) {
      for (const LayerShare& share : layer_shares(plan, task))
        bytes += share.node.exists() ? share.fetched : 0;
    }
    return bytes;
  };
  const auto fetched = [](const Plan& plan) {
    std::int64_t bytes = 0;
    for (const Task& task : plan.tasks) {
      for (const auto& [from, of_device] : bytes_fetched(plan, task)) bytes += from.exists() ? of_device : 0;
    }
    return bytes;
  };
  constexpr std::int64_t kFlags = 4096;  // costs that are not finite belong to no layer
  for (const std::vector<int>& processes : {std::vector<int>{4}, {1, 1, 1, 1}, {2, 2}, {1, 3}}) {
    const PlannedNet net = net_of_processes("lenet", 4, processes);
    const Plan& plan = net.plans->plan(Phase::train, 16);
    INFO(processes.size() << " processes");
    CHECK(fetched(plan) > 100 * kFlags);
    CHECK(fetched(plan) - fetched_for_layers(plan) >= 0);
    CHECK(fetched(plan) - fetched_for_layers(plan) < kFlags);
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

TEST_CASE("both ends of a message lie in groups that share all their messages") {
  const auto check = [](const std::string& config, PlannedNet& net) {
    for (const Phase phase : {Phase::train, Phase::test}) {
      INFO(config);
      const Plan& plan = net.plan(phase, 16);
      const auto groups = groups_of(plan);
      std::size_t messages_seen = 0, largest = 0;
      // Any two groups of two processes share all messages that one of them has with the other process.
      for (std::size_t p = 0; p < groups.size(); ++p) {
        for (const std::set<TaskId>& group : groups[p]) {
          messages_seen += group.size();
          largest = std::max(largest, group.size());
          for (std::size_t q = 0; q < groups.size(); ++q) {
            const auto is_with_q = [&](TaskId send) {
              const Task& task = plan.tasks[send];
              const auto from = static_cast<std::size_t>(plan.topology.process(task.device));
              const auto to =
                  static_cast<std::size_t>(plan.topology.process(plan.tasks[task.partner].device));
              return (from == p && to == q) || (from == q && to == p);
            };
            const auto shared = std::count_if(group.begin(), group.end(), is_with_q);
            if (q == p || shared == 0) continue;
            const auto others = std::count_if(groups[q].begin(), groups[q].end(), [&](const auto& other) {
              return std::any_of(group.begin(), group.end(),
                                 [&](TaskId send) { return is_with_q(send) && other.contains(send); });
            });
            CHECK(others == 1);
          }
        }
      }
      CHECK(messages_seen == 2 * messages(plan, TaskKind::send).size());
      if (phase == Phase::train && groups.size() > 2) CHECK(largest > 1);
    }
  };
  for (const int devices : {2, 3, 4}) {
    const std::vector<int> each(static_cast<std::size_t>(devices), 1);
    for (const char* config : {"lenet", "wrn-16-4"}) {
      PlannedNet net = net_of_processes(config, devices, each);
      check(config, net);
    }
  }
  for (const auto& [config, data] : config_cases()) {
    const int devices = PlannedNet(config).graph.gpu_count();
    if (devices == 1) continue;
    PlannedNet net = net_of_processes(config, 0, std::vector<int>(static_cast<std::size_t>(devices), 1));
    check(config, net);
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

TEST_CASE("weights of another process are received where they stay") {
  // Each process of one device receives all that it fetches, and no task copies.
  PlannedNet apart = net_of_processes("lenet", 2, {1, 1});
  PlannedNet alone("lenet", true, false, 2);
  const Plan& plan = apart.plan(Phase::train, 16);
  std::int64_t received = 0, copied = 0;
  for (const Task& task : plan.tasks) {
    CHECK_FALSE(only_copies(task));
    if (task.kind != TaskKind::receive) continue;
    for (const BufferUse& use : task.uses) {
      if (plan.buffers[use.buffer].kind == BufferKind::weights) received += bytes_of(plan, use);
    }
  }
  const Plan& plan_alone = alone.plan(Phase::train, 16);
  for (const Task& task : plan_alone.tasks) {
    if (task.kind == TaskKind::all_gather) copied += task.bytes / 2;  // what is read, and what is written
  }
  CHECK(received > 0);
  CHECK(received == copied);
  // Where a process has two devices, one receives and the other one copies from it.
  PlannedNet pairs = net_of_processes("lenet", 4, {2, 2});
  const Plan& of_pairs = pairs.plan(Phase::train, 16);
  for (const Task& task : of_pairs.tasks) {
    if (!only_copies(task)) continue;
    for (const BufferUse& use : task.uses) CHECK(of_pairs.buffers[use.buffer].kind == BufferKind::weights);
  }
}

TEST_CASE("a message waits for an earlier one of its stream that must end before it") {
  // Two updates of one minibatch bring the same weights, which the second process never reads between them.
  Plan plan;
  plan.topology = Topology({}, {1, 1});
  const auto add = [&](int device, BufferKind kind) {
    return add_buffer(plan.buffers, "", kind, DeviceId(device), {{4}, DataType::f32, nullptr});
  };
  const BufferId first = add(0, BufferKind::weights), second = add(0, BufferKind::weights),
                 copy = add(1, BufferKind::weights);
  for (const BufferId source : {first, second}) {
    Task task;
    task.kind = TaskKind::all_gather;
    task.stream = Stream::update;
    task.device = DeviceId(1);
    task.op = OpDesc(CopyRuns{{{4}}});
    const TensorDesc& desc = plan.buffers[source].desc;
    task.form.change().args = {desc, desc};
    task.uses = {{source, Access::read, 0, 0, 16}, {copy, Access::write, 0, 0, 16}};
    plan.tasks.push_back(std::move(task));
  }
  split_between_processes(plan);
  find_dependencies(plan);
  REQUIRE(plan.tasks.size() == 4);
  const TaskId one(1), two(3);
  CHECK(plan.tasks[two].kind == TaskKind::receive);
  CHECK(plan.tasks[two].after == std::vector<TaskId>{one});
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
