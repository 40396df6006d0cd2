// Places of buffers: tight, shared where it is safe, in place where layers allow it, without needless
// reorders.
#include <deque>

#include "tests/catch.h"
#include "tests/layers/small_net.h"
#include "tests/plan/planned_net.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Bytes of all transient buffers of a device alive during the task when most are.
std::int64_t fullest_moment(const Plan& plan, DeviceId device) {
  const Table<BufferId, Life> all = lives(plan);
  std::int64_t most = 0;
  for (const TaskId t : plan.tasks.ids()) {
    std::int64_t now = 0;
    for (const BufferId b : plan.buffers.ids()) {
      if (plan.buffers[b].device == device && is_transient(plan.buffers[b]) && all[b].first <= t &&
          t <= all[b].last)
        now += plan.buffers[b].bytes;
    }
    most = std::max(most, now);
  }
  return most;
}

std::int64_t sum(const std::map<BufferKind, std::int64_t>& by_kind, bool persistent) {
  std::int64_t bytes = 0;
  for (const auto& [kind, n] : by_kind) {
    if ((kind <= BufferKind::costs) == persistent) bytes += n;
  }
  return bytes;
}

/// The plan with every transient buffer at a place of its own, and a guard behind each.
struct SpreadOut {
  Plan plan;
  std::vector<BufferId> guards;
};
SpreadOut spread_out(const Plan& plan) {
  SpreadOut spread{plan, {}};
  std::int64_t end = 0;
  for (const BufferId b : plan.buffers.ids()) {
    if (!is_transient(plan.buffers[b])) continue;
    spread.plan.buffers[b].offset = end;
    end += (plan.buffers[b].bytes + 63) / 64 * 64;
    // Behind the last byte at once: buffers hold whole floats.
    Buffer guard;
    guard.kind = BufferKind::workspace;
    guard.bytes = 64;
    guard.desc = {{16}, DataType::f32, nullptr};
    guard.offset = spread.plan.buffers[b].offset + (plan.buffers[b].bytes + 3) / 4 * 4;
    end += 64;
    spread.guards.push_back(spread.plan.buffers.next_id());
    spread.plan.buffers.push_back(std::move(guard));
  }
  spread.plan.memory[0].transient = end;
  return spread;
}

}  // namespace

TEST_CASE("the transient memory is little more than its fullest moment") {
  for (const auto& [config, data] : config_data()) {
    for (const std::int64_t images : {1, 7, 128}) {
      PlannedNet net(config);
      for (const Phase phase : {Phase::train, Phase::test}) {
        INFO(config << ", " << images << (phase == Phase::train ? " train" : " test"));
        const Plan& plan = net.plan(phase, images);
        for (const DeviceId device : plan.memory.ids()) {
          const DeviceMemoryNeeds& needs = plan.memory.at(device);
          const std::int64_t least = fullest_moment(plan, device);
          CHECK(needs.transient >= least);
          // If streams and devices overlap, tasks far from each other in the list run at the same time.
          const double slack = plan.memory.size() == 1 ? 1.25 : 2.5;
          CHECK(static_cast<double>(needs.transient) <= slack * static_cast<double>(least) + 4096);
          CHECK(sum(needs.by_kind, false) == least);
          CHECK(sum(needs.by_kind, true) <= needs.persistent);
        }
      }
      CHECK(net.plan(Phase::test, images).memory[0].transient <
            net.plan(Phase::train, images).memory[0].transient);
    }
  }
}

TEST_CASE("buffers are aligned and inside the memory that is asked for") {
  for (const auto& [config, data] : config_data()) {
    PlannedNet net(config);
    const Plan& plan = net.plan(Phase::train, 7);
    for (const Buffer& b : plan.buffers) {
      INFO(config << ": " << b.name);
      if (b.kind == BufferKind::input) continue;
      CHECK(b.offset % 64 == 0);
      CHECK(b.offset >= 0);
      const DeviceMemoryNeeds& needs = plan.memory.at(b.device);
      CHECK(b.offset + b.bytes <= (b.persistent() ? needs.persistent : needs.transient));
    }
  }
}

TEST_CASE("neurons work in place") {
  int seen = 0;
  for (const auto& [config, data] : config_data()) {
    PlannedNet net(config);
    for (const Phase phase : {Phase::train, Phase::test}) {
      const Plan& plan = net.plan(phase, 7);
      for (const Task& task : plan.tasks) {
        INFO(config << ": " << describe(plan, task, net.graph));
        // Other neurons need their input in backward.
        const auto* neuron = std::get_if<NeuronForward>(&*task.op);
        if (neuron != nullptr && neuron_uses_output(neuron->f.kind)) {
          CHECK(task.uses[0].buffer == task.uses[1].buffer);
          ++seen;
        }
        // A gradient that comes from another device is copied, not written over.
        if (std::holds_alternative<NeuronBackward>(*task.op) && net.graph.gpu_count() == 1)
          CHECK(task.uses[1].buffer == task.uses[2].buffer);
      }
    }
  }
  CHECK(seen > 0);
}

TEST_CASE("no reorder stands between conv, pool, norm and neuron layers of alexnet-owt") {
  PlannedNet net("alexnet-owt");
  for (const Phase phase : {Phase::train, Phase::test}) {
    int activations = 0;
    for (const Task& task : net.plan(phase, 128).tasks) {
      if (task.kind != TaskKind::reorder) continue;
      const Buffer& from = net.plan(phase, 128).buffers[task.uses[0].buffer];
      const std::string at = net.graph.nodes[task.node].name;
      INFO(at << ": " << from.name << " " << from.desc.layout_name());
      const bool matrix = from.kind == BufferKind::weights || from.kind == BufferKind::weights_gradient;
      if (matrix) continue;
      ++activations;
      // Maps become a vector, and on the way back a vector maps.
      CHECK((at == "fc4096a" || at == "pool5_neuron" || at == "pool5"));
    }
    CHECK(activations <= (phase == Phase::train ? 2 : 1));
  }
}

TEST_CASE("sharing memory changes no bit, and no operation writes beyond its buffers") {
  const Dims image = {3, 11, 11};
  const NetTexts texts = between_data_and_cost(
      "[conv1]\ntype=conv\ninputs=data\nchannels=3\nfilters=20\nfilterSize=3\nstride=2\ninitW=0.2\nneuron="
      "relu\n"
      "[norm1]\ntype=cmrnorm\ninputs=conv1\nchannels=20\nsize=4\n"
      "[pool1]\ntype=pool\npool=max\ninputs=norm1\nchannels=20\nsizeX=3\nstride=2\nneuron=logistic\n"
      "[conv2]\ntype=conv\ninputs=pool1\nchannels=20\nfilters=5\ngroups=2\nfilterSize=3\npadding=1\ninitW=0."
      "2\n"
      "[pool2]\ntype=pool\npool=avg\ninputs=conv2\nchannels=10\nsizeX=2\nstart=-1\nstride=2\n"
      "[fc1]\ntype=fc\ninputs=pool2,conv1\noutputs=7\ninitW=0.2\nneuron=tanh[1,1]\n[drop]\ntype="
      "dropout\ninputs=fc1\n",
      "drop,fc1", 3, "[norm1]\nscale=0.5\npow=0.75\n");
  SmallNet shared(texts, image, 3), apart(texts, image, 3);
  std::deque<SpreadOut> spreads;  // executors want plans to stay
  for (std::uint64_t i = 0; i < 6; ++i) {
    const Phase phase = i % 3 == 2 ? Phase::test : Phase::train;
    const Minibatch batch = random_minibatch(image, 5, 3, i);
    const StepOutcome outcome = shared.step(phase, batch, i);
    const SpreadOut& spread = spreads.emplace_back(spread_out(apart.prepare(phase, 5)));
    Executor& executor = apart.net().executor();
    StepInputs inputs;
    inputs.matrices = {reinterpret_cast<const std::byte*>(batch.data.data()),
                       reinterpret_cast<const std::byte*>(batch.labels.data())};
    inputs.iteration = i;
    inputs.rates = apart.net().rates(0);
    std::vector<double> costs = executor.run(spread.plan, inputs).costs;
    costs.erase(costs.begin());
    CHECK(costs == outcome.costs);
    if (i > 0) continue;  // the memory is used by another plan from then on
    for (const BufferId guard : spread.guards)
      CHECK(executor.read(&spread.plan, guard) == std::vector<float>(16, 0.0F));
  }
  const auto other = apart.tensors();
  for (const auto& [name, tensor] : shared.tensors()) CHECK(tensor.values == other.at(name).values);
}
