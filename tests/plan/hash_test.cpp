// Plans for GPUs are the same on every machine, and a plan's hash says whether two plans are the same.
#include "convnet/plan/hash.h"
#include "convnet/plan/verify.h"

#include <fstream>
#include <set>
#include <sstream>
#include <type_traits>

#include "tests/catch.h"
#include "tests/plan/planned_net.h"

namespace convnet::test {
namespace {

/// Plans of `config` for GPUs, made without one.
PlannedNet gpu_plans(const std::string& config, Precision precision, int data_parallel = 0) {
  return PlannedNet(config, true, false, data_parallel, precision, "cuda");
}

std::string line_of(const std::string& config, Precision precision) {
  PlannedNet net = gpu_plans(config, precision);
  std::string line = config + " " + to_string(precision);
  // Memory shows workspaces and places, which are not in the hash.
  for (const Phase phase : {Phase::train, Phase::test}) {
    const Plan& plan = net.plan(phase, 96);
    line += " " + hash_text(plan_hash(plan)) + " " + std::to_string(plan.memory[0].transient);
  }
  return line + "\n";
}

/// The hash of a plan after a change.
template <class Change>
std::uint64_t hash_after(const Plan& plan, const Change& change) {
  Plan changed = plan;
  change(changed);
  return plan_hash(changed);
}

}  // namespace

TEST_CASE("plans for GPUs are those that other machines make") {
  std::string lines;
  for (const auto& [config, data] : config_data()) {
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
      lines += line_of(config, precision);
      for (const Phase phase : {Phase::train, Phase::test}) {
        PlannedNet net = gpu_plans(config, precision);
        CHECK_NOTHROW(verify(net.plan(phase, 96), net.graph));
      }
    }
  }
  std::ifstream file(CONVNET_SOURCE_DIR "/tests/plan/cuda_hashes.txt");
  std::ostringstream expected;
  expected << file.rdbuf();
  // A change of the plans changes this file: convnet's plans of different versions do not work together.
  INFO("tests/plan/cuda_hashes.txt would be\n" << lines);
  CHECK(lines == expected.str());
}

TEST_CASE("the hash of a plan depends on everything that processes must agree on") {
  PlannedNet net = gpu_plans("lenet", Precision::tf32, 2);
  const Plan& plan = net.plan(Phase::train, 32);
  std::set<std::uint64_t> hashes = {plan_hash(plan)};
  const auto expect_change = [&](const char* what, const auto& change) {
    INFO(what);
    CHECK(hashes.insert(hash_after(plan, change)).second);
  };
  expect_change("precision", [](Plan& p) { p.precision = "fp32"; });
  expect_change("phase", [](Plan& p) { p.phase = Phase::check; });
  expect_change("images", [](Plan& p) { ++p.images; });
  expect_change("the place of weights", [](Plan& p) { p.buffers.front().offset += 256; });
  expect_change("a buffer's name", [](Plan& p) { p.buffers.back().name += "x"; });
  expect_change("a buffer's type", [](Plan& p) { p.buffers.back().desc.type = DataType::bf16; });
  expect_change("a buffer's layout", [](Plan& p) {
    for (Buffer& b : p.buffers) {
      if (b.desc.plain()) continue;
      b.desc.layout = nullptr;
      break;
    }
  });
  expect_change("a device",
                [](Plan& p) { p.tasks.back().device = DeviceId(p.tasks.back().device.value() ^ 1); });
  expect_change("a stream", [](Plan& p) { p.tasks[1].stream = Stream::copy; });
  expect_change("the order", [](Plan& p) { std::swap(p.tasks[1], p.tasks[2]); });
  expect_change("a dependency", [](Plan& p) { p.tasks.back().after.push_back(TaskId(0)); });
  expect_change("an argument", [](Plan& p) {
    BufferId& buffer = p.tasks.back().uses.back().buffer;
    buffer = BufferId(buffer.value() + 1);
  });
  expect_change("a range", [](Plan& p) { ++p.tasks.back().uses.back().begin; });
  expect_change("a number of an operation", [](Plan& p) {
    for (Task& task : p.tasks) {
      if (auto* conv = std::get_if<ConvForward>(&task.op.change())) {
        ++conv->g.pad.x;
        return;
      }
    }
  });
  const auto expect_other_windows = [&](const char* what, const auto& change) {
    expect_change(what, [&](Plan& p) {
      for (Task& task : p.tasks) {
        if (auto* conv = std::get_if<ConvForward>(&task.op.change())) change(conv->g);
        if (auto* pool = std::get_if<PoolForward>(&task.op.change())) change(pool->g);
      }
    });
  };
  const auto both = [](auto of_conv, auto of_pool) {
    return [=](auto& g) {
      if constexpr (std::is_same_v<std::decay_t<decltype(g)>, ConvGeometry>)
        of_conv(g);
      else
        of_pool(g);
    };
  };
  const auto nothing = [](auto&) {};
  expect_other_windows("lower filters", both([](auto& g) { --g.filter.y; }, nothing));
  expect_other_windows("narrower filters", both([](auto& g) { --g.filter.x; }, nothing));
  expect_other_windows("steps down", both([](auto& g) { ++g.stride.y; }, nothing));
  expect_other_windows("a border above", both([](auto& g) { ++g.pad.y; }, nothing));
  expect_other_windows("dilation", both([](auto& g) { g.dilation = 2; }, nothing));
  expect_other_windows("dilation downwards", both([](auto& g) { g.dilation.y = 2; }, nothing));
  expect_other_windows("a higher pool", both(nothing, [](auto& g) { ++g.size.y; }));
  expect_other_windows("steps down of a pool", both(nothing, [](auto& g) { ++g.stride.y; }));
  expect_other_windows("the start of a pool", both(nothing, [](auto& g) { --g.start.y; }));
  // The hash leaves out everything that a process settles for itself.
  const auto expect_same = [&](const char* what, const auto& change) {
    INFO(what);
    CHECK(hash_after(plan, change) == plan_hash(plan));
  };
  expect_same("an algorithm", [](Plan& p) { p.tasks[1].form.change().algorithm = "another"; });
  expect_same("the place of what lives during a step", [](Plan& p) { p.buffers.back().offset += 256; });
  expect_same("a workspace", [](Plan& p) {
    for (Task& task : p.tasks) {
      task.form.change().workspace_bytes = 1;
      if (task.workspace.exists()) p.buffers[task.workspace].bytes = 1;
    }
  });
  expect_same("a workspace more, before other buffers", [](Plan& p) {
    const auto first =
        std::find_if(p.buffers.begin(), p.buffers.end(), [](const Buffer& b) { return !b.persistent(); });
    const BufferId added(first - p.buffers.begin());
    Buffer scratch;
    scratch.kind = BufferKind::workspace;
    p.buffers.insert(first, scratch);
    const auto move = [&](BufferId& buffer) {
      if (buffer >= added) buffer = BufferId(buffer.value() + 1);
    };
    for (BufferId& input : p.inputs) move(input);
    for (Task& task : p.tasks) {
      for (BufferUse& use : task.uses) move(use.buffer);
      move(task.workspace);
      if (!task.workspace.exists()) task.workspace = added;
    }
  });
  // The same plan again, by another set.
  PlannedNet again = gpu_plans("lenet", Precision::tf32, 2);
  static_cast<void>(again.plan(Phase::test, 16));
  CHECK(plan_hash(again.plan(Phase::train, 32)) == plan_hash(plan));
}

TEST_CASE("which plans are made before changes no plan") {
  for (const std::string device : {"cpu", "cuda"}) {
    PlannedNet net("alexnet-owt-2gpu-hybrid", true, false, 0, Precision::fp32, device);
    PlannedNet other("alexnet-owt-2gpu-hybrid", true, false, 0, Precision::fp32, device);
    const std::uint64_t first = plan_hash(net.plan(Phase::train, 128));
    static_cast<void>(other.plan(Phase::test, 7));
    static_cast<void>(other.plan(Phase::check, 3));
    CHECK(plan_hash(other.plan(Phase::train, 128)) == first);
  }
}

}  // namespace convnet::test
