// The order of tasks is what a search along streams and dependencies finds, and dependencies are no more than
// needed.
#include "convnet/plan/order.h"

#include <algorithm>
#include <random>

#include "convnet/plan/ranges.h"
#include "tests/catch.h"
#include "tests/plan/hand_made_plan.h"

using namespace convnet;
using namespace convnet::test;

namespace {

using Bits = Table<TaskId, Table<TaskId, bool>>;

/// Returns, for every task, the tasks before it.
Bits tasks_before(const Plan& plan) {
  const std::size_t count = plan.tasks.size();
  Bits before(count, Table<TaskId, bool>(count, false));
  for (const TaskId t : plan.tasks.ids()) {
    const auto wait_for = [&](TaskId earlier) {
      before[t][earlier] = true;
      for (const TaskId e : IdRange<TaskId>(earlier.value()))
        before[t][e] = before[t][e] || before[earlier][e];
    };
    for (const TaskId e : IdRange<TaskId>(t.value())) {
      if (plan.tasks[e].device == plan.tasks[t].device && plan.tasks[e].stream == plan.tasks[t].stream)
        wait_for(e);
    }
    for (const TaskId after : plan.tasks[t].after) wait_for(after);
  }
  return before;
}

/// Tasks on some devices that wait for some others, or, like sums over all replicas, for one on each device.
Plan random_plan(std::mt19937& random) {
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  const int devices = 1 + below(6);
  std::vector<TaskSpec> specs;
  while (specs.size() < 120) {
    const auto stream = static_cast<Stream>(below(kWorkStreams));
    const auto known = static_cast<int>(specs.size());
    if (below(4) == 0 && known > devices) {
      for (int device = 0; device < devices; ++device) {
        TaskSpec spec{.device = device, .stream = stream};
        for (int d = 0; d < devices; ++d) {
          if (d != device || below(2) == 0) spec.after.push_back(known - 1 - d);
        }
        specs.push_back(spec);
      }
      continue;
    }
    TaskSpec spec{.device = below(devices), .stream = stream};
    for (int waits = below(4); known > 0 && waits > 0; --waits) spec.after.push_back(below(known));
    specs.push_back(spec);
  }
  return plan_of(specs);
}

std::vector<TaskId> some_tasks(std::mt19937& random, std::size_t count) {
  std::vector<TaskId> tasks;
  for (unsigned i = 0; i < 1 + random() % 6; ++i) tasks.emplace_back(random() % count);
  return tasks;
}

}  // namespace

TEST_CASE("a task is before another if streams and dependencies say so") {
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const Plan plan = random_plan(random);
    const Bits before = tasks_before(plan);
    const TaskOrder order(plan);
    const std::size_t count = plan.tasks.size();
    for (const TaskId a : plan.tasks.ids())
      for (const TaskId b : plan.tasks.ids()) REQUIRE(order.is_before(a, b) == before[b][a]);
    for (int pairs = 0; pairs < 50; ++pairs) {
      const std::vector<TaskId> a = some_tasks(random, count), b = some_tasks(random, count);
      bool all = true;
      for (const TaskId x : a)
        for (const TaskId y : b) all = all && before[y][x];
      REQUIRE(order.all_before(order.group(a), order.group(b)) == all);
    }
  }
}

TEST_CASE("dependencies that follow from others are left out") {
  std::mt19937 random(2);
  for (int repeat = 0; repeat < 60; ++repeat) {
    Plan plan = random_plan(random);
    const Bits before = tasks_before(plan);
    TaskOrder order(6);
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      Task& task = plan.tasks[t];
      std::sort(task.after.rbegin(), task.after.rend());
      const std::vector<TaskId> all = task.after;
      task.after = order.append(task, all);
      // None of them is before another, or on the task's stream.
      for (const TaskId e : task.after) {
        const Task& other = plan.tasks[e];
        REQUIRE_FALSE((other.device == task.device && other.stream == task.stream));
        for (const TaskId later : task.after) REQUIRE_FALSE(before[later][e]);
      }
    }
    REQUIRE(tasks_before(plan) == before);
  }
}

TEST_CASE("a plan whose task waits for a later one has no order") {
  CHECK_THROWS_AS(TaskOrder(plan_of({{.after = {1}}, {}})), std::logic_error);
  CHECK_THROWS_AS(TaskOrder(plan_of({{.after = {-1}}})), std::logic_error);
}

TEST_CASE("ranges are found by what they overlap") {
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 100; ++repeat) {
    RangeList<int> list;
    std::vector<RangeList<int>::Range> all;
    for (int i = 0; i < 60; ++i) {
      std::vector<RangeList<int>::Range> added;
      for (unsigned k = 0; k < random() % 4; ++k) {
        const std::int64_t begin = random() % 20 == 0 ? 0 : random() % 100;
        const std::int64_t end = begin == 0 ? 100 : begin + random() % 12;
        added.push_back({begin, end, static_cast<int>(all.size() + added.size())});
      }
      list.add(added, 100);
      all.insert(all.end(), added.begin(), added.end());
      const std::int64_t begin = random() % 110;
      const std::int64_t end = begin + random() % 30;
      std::vector<int> expected;
      for (const auto& range : all) {
        if (range.begin < end && begin < range.end) expected.push_back(range.value);
      }
      std::vector<int> found;
      list.visit_overlapping(begin, end, [&](int value) { found.push_back(value); });
      std::sort(found.begin(), found.end());
      REQUIRE(found == expected);
    }
  }
}
