// verify() accepts every plan of configs/ and finds every way to break one.
#include <algorithm>
#include <set>

#include "convnet/plan/hash.h"
#include "convnet/plan/order.h"
#include "convnet/plan/verify.h"
#include "kernels/backend.h"
#include "kernels/cuda/layout.h"
#include "tests/catch.h"
#include "tests/plan/planned_net.h"

using namespace convnet;
using namespace convnet::test;

namespace {

bool passes(const Plan& plan, const Graph& graph) {
  try {
    verify(plan, graph);
  } catch (const std::logic_error&) {
    return false;
  }
  return true;
}

/// The bytes a task reads and writes, as (persistent, begin, end).
struct Bytes {
  bool persistent;
  std::int64_t begin, end;
  bool overlaps(const Bytes& o) const { return persistent == o.persistent && begin < o.end && o.begin < end; }
};
struct Touched {
  std::vector<Bytes> read, written, scratch;
};
Touched touched(const Plan& plan, const Task& task) {
  Touched t;
  const auto bytes = [&](BufferId buffer) {
    const Buffer& b = plan.buffers[buffer];
    return Bytes{b.persistent(), b.offset, b.offset + b.bytes};
  };
  for (const BufferUse& use : task.uses) {
    if (plan.buffers[use.buffer].kind == BufferKind::input) continue;
    if (use.access != Access::write) t.read.push_back(bytes(use.buffer));
    if (use.access != Access::read) t.written.push_back(bytes(use.buffer));
  }
  if (task.workspace.exists()) t.scratch.push_back(bytes(task.workspace));
  return t;
}

bool any_overlap(const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Bytes& x) {
    return std::any_of(b.begin(), b.end(), [&](const Bytes& y) { return x.overlaps(y); });
  });
}

/// Returns whether the order of two tasks matters: one reads or overwrites bytes that the other writes. Two
/// tasks may use the same scratch memory in either order.
bool order_matters(const Plan& plan, const Task& first, const Task& second) {
  const Touched a = touched(plan, first), b = touched(plan, second);
  return any_overlap(a.written, b.read) || any_overlap(a.read, b.written) ||
         any_overlap(a.written, b.written) || any_overlap(a.scratch, b.read) ||
         any_overlap(a.read, b.scratch) || any_overlap(a.scratch, b.written) ||
         any_overlap(a.written, b.scratch);
}

std::string name(const Plan& plan, const Graph& graph, TaskId t) {
  return std::to_string(t.value()) + " " + describe(plan, plan.tasks[t], graph);
}

}  // namespace

TEST_CASE("every plan of configs is right") {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(CONVNET_SOURCE_DIR "/configs")) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() == ".cfg" && !stem.ends_with("-params")) files.insert(stem);
  }
  REQUIRE(files.size() >= 3);
  for (const std::string& config : files) {
    INFO(config);
    if (!config_data().contains(config)) continue;  // ready_nets_test.cpp has these
    PlannedNet net(config);
    for (const std::int64_t images : {128, 7, 1}) {
      for (const Phase phase : {Phase::train, Phase::test})
        CHECK_NOTHROW(verify(net.plan(phase, images), net.graph));
    }
  }
}

TEST_CASE("every plan of configs is right on 1, 2, 4 and 8 devices") {
  for (const auto& [config, data] : config_cases()) {
    for (const int devices : {1, 2, 4, 8}) {
      PlannedNet net(config, true, false, devices);
      for (const std::int64_t images : {16, 9, 3}) {
        for (const Phase phase : {Phase::train, Phase::test}) {
          INFO(config << " on " << devices << " devices, " << images << " images");
          CHECK_NOTHROW(verify(net.plan(phase, images), net.graph));
        }
      }
    }
  }
}

TEST_CASE("every plan of configs is right with several microbatches a replica") {
  for (const auto& [config, data] : config_cases()) {
    for (const int microbatches : {2, 3}) {
      for (const int devices : {0, 4}) {
        PlannedNet net(config, true, false, devices, Precision::fp32, "cpu", {}, microbatches);
        for (const std::int64_t images : {24, 7, 1}) {
          for (const Phase phase : {Phase::train, Phase::test}) {
            INFO(config << " on " << devices << " devices, " << microbatches << " microbatches, " << images
                        << " images");
            CHECK_NOTHROW(verify(net.plan(phase, images), net.graph));
          }
        }
      }
    }
  }
}

TEST_CASE("plans in bf16 are right: copies of weights are made anew after every update") {
  for (const char* config : {"lenet", "wrn-16-4", "alexnet-owt-2gpu-hybrid", "alexnet-owt-4gpu-hybrid",
                             "alexnet-owt-4gpu-hybrid-auto", "alexnet-2gpu-model"}) {
    INFO(config);
    PlannedNet net(config, true, false, 0, Precision::bf16);
    for (const std::int64_t images : {16, 3}) {
      for (const Phase phase : {Phase::train, Phase::test})
        CHECK_NOTHROW(verify(net.plan(phase, images), net.graph));
    }
    if (!cpu_multiplies_bf16()) continue;  // products round the weights themselves
    // A later copy's reader that takes an earlier copy is found.
    Plan bad = net.plan(Phase::train, 16);
    std::map<BufferId, BufferId> first_copy;  // by the weights' buffer
    for (Task& task : bad.tasks) {
      for (BufferUse& use : task.uses) {
        if (use.access != Access::read) continue;
        for (const Task& earlier : net.plan(Phase::train, 16).tasks) {
          if (!std::holds_alternative<Reorder>(*earlier.op) || earlier.uses[1].buffer != use.buffer) continue;
          const BufferId weights = earlier.uses[0].buffer;
          if (bad.buffers[weights].kind != BufferKind::weights) continue;
          const BufferId copy = first_copy.try_emplace(weights, use.buffer).first->second;
          if (same_layout(bad.buffers[copy].desc, bad.buffers[use.buffer].desc)) use.buffer = copy;
        }
      }
    }
    // This is right only if the weights change between the passes of a minibatch.
    const bool several_updates = std::string(config).find("hybrid") != std::string::npos;
    CHECK(passes(bad, net.graph) == !several_updates);
  }
}

TEST_CASE("in bf16 plans weights lie as their gradients do: nothing is reordered for an update") {
  PlannedNet net("alexnet-owt", true, false, 0, Precision::bf16);
  const Plan& plan = net.plan(Phase::train, 16);
  std::map<BufferId, OpDesc> made_by;
  int gradients = 0;
  for (const Task& task : plan.tasks) {
    for (const BufferUse& use : task.uses) {
      if (use.access != Access::read) made_by[use.buffer] = *task.op;
      if (!std::holds_alternative<Update>(*task.op) || use.access != Access::read) continue;
      if (plan.buffers[use.buffer].kind != BufferKind::weights_gradient) continue;
      INFO(plan.buffers[use.buffer].name);
      CHECK_FALSE(std::holds_alternative<Reorder>(made_by.at(use.buffer)));
      ++gradients;
    }
  }
  CHECK(gradients == 16);  // of 8 layers, with their biases
}

/// The matrices whose gradients the updates of a plan read, by the type of these gradients.
struct GradientTypes {
  int rounded = 0, wide = 0;
};
GradientTypes gradient_types(const Plan& plan) {
  GradientTypes types;
  for (const Task& task : plan.tasks) {
    const auto* update = std::get_if<Update>(&*task.op);
    if (update == nullptr) continue;
    std::size_t at = 0;
    for (const Update::Part& part : update->parts) {
      for (std::size_t g = at + 2; g < at + part.accumulator(); ++g)
        CHECK(plan.buffers[task.uses[g].buffer].desc.type == part.gradient_type);
      ++(part.gradient_type == DataType::bf16 ? types.rounded : types.wide);
      at += part.arguments();
    }
  }
  return types;
}

TEST_CASE("updates on GPUs read gradients as bf16 where convolutions have made such") {
  const auto types = [](int replicas, int microbatches, Precision precision = Precision::bf16,
                        const Topology& topology = {}) {
    PlannedNet net("alexnet-owt", true, false, replicas, precision, "cuda", topology, microbatches);
    const Plan& plan = net.plan(Phase::train, 64);
    CHECK_NOTHROW(verify(plan, net.graph));
    for (const Task& task : plan.tasks) {
      const auto* reorder = std::get_if<Reorder>(&*task.op);
      if (reorder == nullptr || plan.buffers[task.uses[0].buffer].kind != BufferKind::weights_gradient)
        continue;
      CHECK(microbatches > 1);  // only sums are f32
      CHECK(reorder->to.type == DataType::f32);
    }
    return gradient_types(plan);
  };
  // 5 convolutions of 8 layers, each of which has biases.
  const GradientTypes one = types(0, 1);
  CHECK(one.rounded == 5);
  CHECK(one.wide == 11);
  // Each replica updates a shard of the larger matrices.
  const GradientTypes two = types(2, 1);
  CHECK(two.rounded >= 5);
  CHECK(two.wide >= 11);
  CHECK(types(0, 2).rounded == 0);
  CHECK(types(0, 1, Precision::tf32).rounded == 0);
}

TEST_CASE("plans for GPUs in bf16 convert no activation") {
  for (const auto& [config, data] : config_cases()) {
    INFO(config);
    PlannedNet net(config, true, false, 0, Precision::bf16, "cuda");
    for (const Phase phase : {Phase::train, Phase::test}) {
      const Plan& plan = net.plan(phase, 96);
      for (const Task& task : plan.tasks) {
        const auto* reorder = std::get_if<Reorder>(&*task.op);
        if (reorder == nullptr) continue;
        INFO(net.graph.nodes[task.node].name << ": " << plan.buffers[task.uses[0].buffer].name);
        CHECK(reorder->from.type == reorder->to.type);
      }
    }
  }
}

TEST_CASE("verify finds an update that takes gradients for others than they are") {
  PlannedNet net("alexnet-owt", true, false, 0, Precision::bf16, "cuda");
  const Plan& good = net.plan(Phase::train, 32);
  int changed = 0;
  for (const TaskId t : good.tasks.ids()) {
    const auto* update = std::get_if<Update>(&*good.tasks[t].op);
    if (update == nullptr) continue;
    std::size_t at = 0;
    for (std::size_t p = 0; p < update->parts.size(); at += update->parts[p].arguments(), ++p) {
      Plan bad = good;
      Task& task = bad.tasks[t];
      Update::Part& part = std::get<Update>(task.op.change()).parts[p];
      part.gradient_type = part.gradient_type == DataType::bf16 ? DataType::f32 : DataType::bf16;
      task.form.change().args[at + 2].type = part.gradient_type;
      CHECK_FALSE(passes(bad, net.graph));
      ++changed;
    }
  }
  CHECK(changed == 16);
}

/// Returns the number of uses by which tasks read weights that are kept as bf16. Checks that none converts
/// weights.
int reads_of_rounded(const Plan& plan) {
  int reads = 0;
  for (const Task& task : plan.tasks) {
    for (const BufferUse& use : task.uses) {
      const Buffer& b = plan.buffers[use.buffer];
      if (b.kind == BufferKind::rounded && use.access == Access::read) ++reads;
      const bool converts = std::holds_alternative<Reorder>(*task.op) && b.kind == BufferKind::weights;
      CHECK_FALSE(converts);
    }
  }
  return reads;
}

/// Returns the plan with an operation in `t` that does not round what use `k` writes.
Plan without_rounding(Plan plan, TaskId t, std::size_t k) {
  Task& task = plan.tasks[t];
  if (auto* update = std::get_if<Update>(&task.op.change())) {
    std::size_t at = 0;
    for (Update::Part& part : update->parts) {
      const std::size_t count = part.arguments();
      if (part.rounds && at + part.rounded() == k) part.rounds = false;
      at += count;
    }
  }
  if (auto* copies = std::get_if<CopyRuns>(&task.op.change())) {
    std::size_t rounded = 2 * copies->runs.size();
    for (CopyRuns::Run& run : copies->runs)
      if (run.rounds && rounded++ == k) run.rounds = false;
  }
  task.uses.erase(task.uses.begin() + static_cast<std::ptrdiff_t>(k));
  task.form.change().args.erase(task.form->args.begin() + static_cast<std::ptrdiff_t>(k));
  REQUIRE(task.uses.size() == arguments(*task.op).size());
  return plan;
}

TEST_CASE("a net that only tests in bf16 converts its weights once, on any device") {
  PlannedNet gpu("alexnet-owt", false, false, 0, Precision::bf16, "cuda");
  CHECK(reads_of_rounded(gpu.plan(Phase::test, 128)) == 8 + 5);  // and biases of convolutions
  PlannedNet cpu("alexnet-owt", false, false, 0, Precision::bf16);
  const bool keeps = reads_of_rounded(cpu.plan(Phase::test, 128)) > 0;
  CHECK(keeps == cpu_multiplies_bf16());  // else products read f32 and round it
}

TEST_CASE("plans for GPUs in bf16 read weights that their updates round") {
  for (const char* config : {"alexnet-owt", "wrn-16-4", "alexnet-owt-4gpu-hybrid", "alexnet-2gpu-model"}) {
    INFO(config);
    PlannedNet net(config, true, false, 0, Precision::bf16, "cuda");
    for (const Phase phase : {Phase::train, Phase::test, Phase::check}) {
      const Plan& plan = net.plan(phase, 32);
      CHECK_NOTHROW(verify(plan, net.graph));
      CHECK(reads_of_rounded(plan) > 0);
    }
  }
}

TEST_CASE("verify finds weights as bf16 that are not those of the update") {
  PlannedNet hybrid("alexnet-owt-4gpu-hybrid", true, false, 0, Precision::bf16, "cuda"),
      // Its tasks update several matrices of one size.
      residual("wrn-16-4", true, false, 2, Precision::bf16, "cuda");
  int updates = 0, fetches = 0, exchanges = 0;
  for (PlannedNet* net : {&hybrid, &residual}) {
    const Plan& good = net->plan(Phase::train, 32);
    const auto is_copy = [&](const BufferUse& use) {
      return good.buffers[use.buffer].kind == BufferKind::rounded && use.access != Access::read;
    };
    for (const TaskId t : good.tasks.ids()) {
      const std::vector<BufferUse>& uses = good.tasks[t].uses;
      for (std::size_t k = 0; k < uses.size(); ++k) {
        if (!is_copy(uses[k])) continue;
        ++(good.tasks[t].kind == TaskKind::all_gather ? fetches : updates);
        CHECK_FALSE(passes(without_rounding(good, t, k), net->graph));
        // Two matrices are rounded into each other's copies.
        for (std::size_t other = k + 1; other < uses.size(); ++other) {
          if (!is_copy(uses[other]) || uses[other].begin != uses[k].begin ||
              bytes_of(good, uses[other]) != bytes_of(good, uses[k]))
            continue;
          Plan bad = good;
          std::swap(bad.tasks[t].uses[k].buffer, bad.tasks[t].uses[other].buffer);
          CHECK_FALSE(passes(bad, net->graph));
          ++exchanges;
          break;
        }
      }
    }
  }
  CHECK(updates > 0);
  CHECK(fetches > 0);
  CHECK(exchanges > 0);
}

TEST_CASE("verify finds every missing dependency") {
  int dropped = 0;
  const auto drop_each = [&](PlannedNet& net, std::int64_t images) {
    for (const Phase phase : {Phase::train, Phase::test}) {
      const Plan& good = net.plan(phase, images);
      Plan bad = good;
      for (const TaskId t : good.tasks.ids()) {
        for (std::size_t k = 0; k < good.tasks[t].after.size(); ++k) {
          bad.tasks[t].after.erase(bad.tasks[t].after.begin() + static_cast<std::ptrdiff_t>(k));
          INFO(name(good, net.graph, t)
               << " no longer waits for " << name(good, net.graph, good.tasks[t].after[k]));
          CHECK_FALSE(passes(bad, net.graph));
          bad.tasks[t].after = good.tasks[t].after;
          ++dropped;
        }
      }
    }
  };
  for (const int devices : {2, 3}) {
    PlannedNet net("lenet", true, false, devices);
    drop_each(net, 7);
  }
  for (const char* config : {"alexnet-owt-2gpu-hybrid", "alexnet-2gpu-model"}) {
    PlannedNet net(config);
    drop_each(net, 2);
  }
  {
    PlannedNet net("lenet", true, false, 3, Precision::fp32, "cpu", Topology({}, {1, 2}));
    drop_each(net, 7);
  }
  for (const char* config : {"alexnet-owt-2gpu-hybrid", "alexnet-2gpu-model"}) {
    PlannedNet net(config, true, false, 0, Precision::fp32, "cpu", Topology({}, {1, 1}));
    drop_each(net, 2);
  }
  CHECK(dropped > 400);
}

TEST_CASE("verify finds weights that are fetched before they are there") {
  PlannedNet net("lenet", true, false, 4, Precision::fp32, "cpu", Topology({2, 2}, {}));
  const Plan& good = net.plan(Phase::train, 8);
  int moved = 0;
  for (const TaskId t : good.tasks.ids()) {
    for (const TaskId before : good.tasks[t].after) {
      if (good.tasks[t].kind != TaskKind::all_gather || good.tasks[before].kind != TaskKind::all_gather)
        continue;
      // A neighbour fetches before the device that it fetches from has done so. All else is made to agree.
      Plan bad = good;
      bad.tasks.erase(bad.tasks.begin() + t.value());
      bad.tasks.insert(bad.tasks.begin() + before.value(), good.tasks[t]);
      for (Task& task : bad.tasks) task.after.clear();
      find_dependencies(bad);
      INFO(name(good, net.graph, t) << " comes before " << name(good, net.graph, before));
      CHECK_FALSE(passes(bad, net.graph));
      ++moved;
    }
  }
  CHECK(moved > 0);
}

TEST_CASE("verify finds a task that touches another device's memory") {
  PlannedNet net("lenet", true, false, 3);
  const Plan& good = net.plan(Phase::train, 8);
  int moved = 0;
  for (const TaskId t : good.tasks.ids()) {
    INFO(name(good, net.graph, t));
    Plan bad = good;
    bad.tasks[t].device = DeviceId((bad.tasks[t].device.value() + 1) % 3);
    CHECK_FALSE(passes(bad, net.graph));
    if (!communicates(good.tasks[t].kind)) continue;
    // Only communication may.
    bad = good;
    bad.tasks[t].kind = TaskKind::forward;
    CHECK_FALSE(passes(bad, net.graph));
    ++moved;
  }
  CHECK(moved > 10);
}

TEST_CASE("verify finds tasks in another order") {
  PlannedNet net("lenet");
  for (const Phase phase : {Phase::train, Phase::test}) {
    const Plan& good = net.plan(phase, 7);
    int swapped = 0;
    for (const TaskId i : good.tasks.ids()) {
      for (const TaskId j : good.tasks.ids()) {
        if (j <= i) continue;
        if (!order_matters(good, good.tasks[i], good.tasks[j])) continue;
        Plan bad = good;
        std::swap(bad.tasks[i], bad.tasks[j]);
        INFO(name(good, net.graph, i) << " changes places with " << name(good, net.graph, j));
        CHECK_FALSE(passes(bad, net.graph));
        ++swapped;
      }
    }
    CHECK(swapped >= static_cast<int>(good.tasks.size()) - 1);
  }
}

TEST_CASE("verify lets tasks change places that do not touch each other") {
  PlannedNet net("lenet");
  const Plan& good = net.plan(Phase::train, 7);
  int swapped = 0;
  for (const TaskId i : good.tasks.ids()) {
    const TaskId next(i.value() + 1);
    if (!good.tasks.has(next) || order_matters(good, good.tasks[i], good.tasks[next])) continue;
    Plan other = good;
    std::swap(other.tasks[i], other.tasks[next]);
    INFO(name(good, net.graph, i) << " changes places with " << name(good, net.graph, next));
    CHECK_NOTHROW(verify(other, net.graph));
    ++swapped;
  }
  CHECK(swapped > 0);
}

TEST_CASE("verify finds a missing task") {
  PlannedNet net("lenet");
  for (const Phase phase : {Phase::train, Phase::test}) {
    const Plan& good = net.plan(phase, 7);
    for (const TaskId t : good.tasks.ids()) {
      Plan bad = good;
      bad.tasks.erase(bad.tasks.begin() + t.value());
      INFO("without " << name(good, net.graph, t));
      CHECK_FALSE(passes(bad, net.graph));
    }
  }
}

TEST_CASE("verify finds a task that runs twice") {
  PlannedNet net("lenet");
  const Plan& good = net.plan(Phase::train, 7);
  for (const TaskId t : good.tasks.ids()) {
    Plan bad = good;
    bad.tasks.insert(bad.tasks.begin() + t.value(), good.tasks[t]);
    INFO("twice " << name(good, net.graph, t));
    CHECK_FALSE(passes(bad, net.graph));
  }
}

TEST_CASE("verify finds a buffer that is too small, even if its layout says that it is not") {
  PlannedNet net("lenet", true, false, 0, Precision::bf16, "cuda");
  for (const Phase phase : {Phase::train, Phase::test}) {
    const Plan& good = net.plan(phase, 8);
    int shrunk = 0, cut = 0;
    for (const BufferId b : good.buffers.ids()) {
      const TensorDesc& desc = good.buffers[b].desc;
      if (!is_transient(good.buffers[b]) || desc.dims.size() != 4) continue;
      INFO(good.buffers[b].name << " " << desc.layout_name());
      // The layout of half the images: all sizes agree, and all are wrong.
      Dims half = desc.dims;
      half[0] /= 2;
      const std::shared_ptr<const Layout> layout = cuda::channels_last(half, desc.type).layout;
      Plan bad = good;
      bool used = false;
      for (Task& task : bad.tasks) {
        for (std::size_t k = 0; k < task.uses.size(); ++k) {
          if (task.uses[k].buffer != b) continue;
          used = true;
          if (!desc.plain()) task.form.change().args[k].layout = layout;
        }
      }
      if (!used) continue;
      if (!desc.plain() && layout != nullptr) {
        bad.buffers[b].desc.layout = layout;
        bad.buffers[b].bytes = bad.buffers[b].desc.bytes();
        CHECK_FALSE(passes(bad, net.graph));
        ++shrunk;
      }
      // An operation that writes only a part.
      bad = good;
      for (Task& task : bad.tasks) {
        for (std::size_t k = 0; k < task.uses.size(); ++k) {
          if (task.uses[k].buffer != b || task.uses[k].access == Access::read) continue;
          task.form.change().args[k] = cuda::channels_last(half, desc.type);
          ++cut;
        }
      }
      CHECK_FALSE(passes(bad, net.graph));
    }
    CHECK(shrunk >= 4);
    CHECK(cut >= 6);
  }
}

TEST_CASE("a buffer smaller than its elements cannot be made") {
  Plan plan;
  // A layout of bf16 numbers under the type f32.
  TensorDesc desc = cuda::channels_last({2, 3, 4, 5}, DataType::bf16);
  CHECK_NOTHROW(add_buffer(plan.buffers, "x", BufferKind::activation, DeviceId(0), desc));
  CHECK_NOTHROW(
      add_buffer(plan.buffers, "x", BufferKind::activation, DeviceId(0), with_type(desc, DataType::f32)));
  desc.type = DataType::f32;
  CHECK_THROWS_WITH(add_buffer(plan.buffers, "x", BufferKind::activation, DeviceId(0), desc),
                    "plan: 'x' is 2x3x4x5 f32, but its layout has 240 bytes");
}

TEST_CASE("verify finds a read of what nothing wrote") {
  PlannedNet net("lenet");
  const Plan& good = net.plan(Phase::train, 7);
  int reads = 0;
  for (const TaskId t : good.tasks.ids()) {
    for (std::size_t u = 0; u < good.tasks[t].uses.size(); ++u) {
      const BufferUse& use = good.tasks[t].uses[u];
      const Buffer& read = good.buffers[use.buffer];
      if (use.access == Access::write || !is_transient(read)) continue;
      Plan bad = good;
      Buffer empty = read;
      empty.offset = good.memory[0].transient;
      bad.tasks[t].uses[u].buffer = bad.buffers.next_id();
      bad.buffers.push_back(std::move(empty));
      INFO(name(good, net.graph, t) << " argument " << u);
      CHECK_FALSE(passes(bad, net.graph));
      ++reads;
    }
  }
  CHECK(reads > 20);
}

TEST_CASE("verify finds buffers that share memory while both are in use") {
  PlannedNet net("lenet");
  for (const Phase phase : {Phase::train, Phase::test}) {
    const Plan& good = net.plan(phase, 7);
    const Table<BufferId, Life> all = lives(good);
    int moved = 0;
    for (const BufferId a : good.buffers.ids()) {
      for (const BufferId b : good.buffers.ids()) {
        if (a == b || good.buffers[a].offset < 0 || good.buffers[b].offset < 0) continue;
        const bool both_stay = good.buffers[a].persistent() && good.buffers[b].persistent();
        const bool both_live = is_transient(good.buffers[a]) && is_transient(good.buffers[b]) &&
                               all[a].first <= all[b].last && all[b].first <= all[a].last;
        // Increments and the mean are not touched in tests.
        if (!(both_stay || both_live) || !all[a].last.exists() || !all[b].last.exists()) continue;
        Plan bad = good;
        bad.buffers[a].offset = good.buffers[b].offset;
        INFO("'" << good.buffers[a].name << "' lies on '" << good.buffers[b].name << "'");
        CHECK_FALSE(passes(bad, net.graph));
        // Its last bytes on the other's first.
        bad.buffers[a].offset = good.buffers[b].offset - aligned(good.buffers[a].bytes) + kMemoryAlignment;
        if (bad.buffers[a].offset >= 0) CHECK_FALSE(passes(bad, net.graph));
        ++moved;
      }
    }
    CHECK(moved > 50);
  }
}

TEST_CASE("verify finds errors in plans so large that threads share the work") {
  PlannedNet net("resnet18-imagenet", true, false, 32, Precision::fp32, "cuda");
  net.plans->make_verified({{Phase::train, 64}, {Phase::test, 64}});
  const Plan& good = net.plan(Phase::train, 64);
  REQUIRE(good.tasks.size() > 4096);
  // The same plan, made and placed again.
  PlannedNet again("resnet18-imagenet", true, false, 32, Precision::fp32, "cuda");
  const Plan& same = again.plan(Phase::train, 64);
  CHECK(plan_hash(same) == plan_hash(good));
  for (const BufferId b : good.buffers.ids()) REQUIRE(same.buffers[b].offset == good.buffers[b].offset);

  // The two results of the last task that has two lie on each other.
  Plan bad = good;
  const auto two_results = [&](const Task& t) {
    return t.uses.size() > 2 && t.uses.back().access == Access::write &&
           t.uses[t.uses.size() - 2].access == Access::write && is_transient(good.buffers[t.uses[0].buffer]);
  };
  const auto task = std::find_if(good.tasks.rbegin(), good.tasks.rend(), two_results);
  REQUIRE(task != good.tasks.rend());
  const std::size_t last = task->uses.size() - 1;
  bad.buffers[task->uses[last].buffer].offset = good.buffers[task->uses[last - 1].buffer].offset;
  CHECK_FALSE(passes(bad, net.graph));
  bad = good;
  const auto waiting =
      std::find_if(bad.tasks.rbegin(), bad.tasks.rend(), [](const Task& t) { return !t.after.empty(); });
  REQUIRE(waiting != bad.tasks.rend());
  waiting->after.clear();
  CHECK_FALSE(passes(bad, net.graph));
}

TEST_CASE("tasks that do the same share the form of their operation") {
  PlannedNet net("alexnet-owt", true, false, 4, Precision::fp32, "cuda");
  const Plan& plan = net.plan(Phase::train, 64);
  std::set<const OpForm*> convolutions, products;
  for (const Task& task : plan.tasks) {
    if (std::holds_alternative<ConvForward>(*task.op)) convolutions.insert(&*task.form);
    if (std::holds_alternative<InnerProductForward>(*task.op)) products.insert(&*task.form);
  }
  CHECK(convolutions.size() == 5);
  CHECK(products.size() == 3);
}

TEST_CASE("verify finds memory that is not aligned") {
  PlannedNet net("lenet");
  Plan plan = net.plan(Phase::train, 7);
  const auto last =
      std::max_element(plan.buffers.begin(), plan.buffers.end(), [](const Buffer& a, const Buffer& b) {
        return (is_transient(a) ? a.offset : -1) < (is_transient(b) ? b.offset : -1);
      });
  REQUIRE(is_transient(*last));
  plan.memory[0].transient += kMemoryAlignment;
  REQUIRE(passes(plan, net.graph));
  last->offset += kMemoryAlignment / 2;
  CHECK_FALSE(passes(plan, net.graph));
}

TEST_CASE("verify finds wrong sizes, layouts, devices and dependencies") {
  PlannedNet net("lenet");
  const Plan& good = net.plan(Phase::train, 7);
  const auto broken = [&](const auto& change) {
    Plan bad = good;
    change(bad);
    return !passes(bad, net.graph);
  };
  for (const TaskId t : good.tasks.ids()) {
    INFO(name(good, net.graph, t));
    CHECK(broken([&](Plan& p) { p.tasks[t].device = DeviceId(1); }));
    CHECK(broken([&](Plan& p) { p.tasks[t].device = DeviceId(); }));
    CHECK(broken([&](Plan& p) { p.tasks[t].after = {t}; }));
    CHECK(broken([&](Plan& p) { p.tasks[t].after = {TaskId()}; }));
    CHECK(broken([&](Plan& p) { p.tasks[t].uses.pop_back(); }));
    CHECK(broken([&](Plan& p) { p.tasks[t].uses[0].buffer = p.buffers.next_id(); }));
    CHECK(broken([&](Plan& p) { p.tasks[t].uses[0].buffer = BufferId(); }));
    if (good.tasks[t].workspace.exists()) {
      CHECK(broken([&](Plan& p) { p.buffers[p.tasks[t].workspace].bytes -= 1; }));
      CHECK(broken([&](Plan& p) { p.tasks[t].workspace = BufferId(); }));
    }
    for (std::size_t u = 0; u < good.tasks[t].uses.size(); ++u) {
      const BufferId b = good.tasks[t].uses[u].buffer;
      INFO("argument " << u << ", '" << good.buffers[b].name << "'");
      if (good.buffers[b].kind == BufferKind::input) continue;  // the host's
      CHECK(broken([&](Plan& p) { p.buffers[b].device = DeviceId(1); }));
      CHECK(broken([&](Plan& p) { p.buffers[b].offset = -1; }));
      CHECK(broken([&](Plan& p) { p.buffers[b].offset = 1 << 30; }));
      // These two have no layout of their own; operations find their places in them by index.
      if (good.buffers[b].kind == BufferKind::step || good.buffers[b].kind == BufferKind::costs) continue;
      CHECK(broken([&](Plan& p) { p.buffers[b].bytes -= 1; }));
    }
  }
}
