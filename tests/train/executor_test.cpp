// The executor on several devices: errors end a step on all of them, and a step that stalls is reported.
#include "convnet/runtime/executor.h"

#include <condition_variable>
#include <mutex>

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/layers/small_net.h"
#include "tests/wrapped_backend.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const Dims kExecutorImage = {3, 8, 8};
constexpr int kExecutorClasses = 4;

/// Held by tests so that workers can be released before the memory they use is gone.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;

  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return open; });
  }
  void release() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
};

struct TwoDevices {
  ShapeOnlyProvider provider{kExecutorImage, kExecutorClasses};
  Graph graph;
  std::unique_ptr<Backend> backend = make_cpu_backend(1);
  std::unique_ptr<PlanSet> plans;
  Minibatch batch = random_minibatch(kExecutorImage, 6, kExecutorClasses, 1);
  StepInputs inputs;

  TwoDevices() {
    const NetTexts texts = between_data_and_cost(
        "[conv1]\ntype=conv\ninputs=data\nchannels=3\nfilters=8\nfilterSize=3\ninitW=0.1\ngpu=0,1\n", "conv1",
        kExecutorClasses);
    Diagnostics diagnostics;
    graph = build_graph(parse_ini("net.cfg", texts.definition, diagnostics),
                        parse_ini("params.cfg", texts.parameters, diagnostics), provider.matrices(), {},
                        diagnostics);
    diagnostics.throw_if_errors();
    plans = std::make_unique<PlanSet>(graph, provider.matrices(), backend->target(), PlanOptions{});
    inputs.matrices = {reinterpret_cast<const std::byte*>(batch.data.data()),
                       reinterpret_cast<const std::byte*>(batch.labels.data())};
    inputs.rates.resize(plans->weights().size());
  }
};

/// Binds nothing while `broken` is set.
struct BreakableBackend : WrappedBackend {
  using WrappedBackend::WrappedBackend;
  bool broken = false;
  std::shared_ptr<const PreparedOp> bind(const OpDesc& op, const OpForm& form, int device) const override {
    if (broken) throw DeviceError("cannot bind");
    return WrappedBackend::bind(op, form, device);
  }
};

}  // namespace

TEST_CASE("a plan that cannot be bound leaves the executor as it was") {
  TwoDevices net;
  BreakableBackend backend(make_cpu_backend(1));
  Executor executor(*net.plans, backend, {0, 1});
  const Plan& plan = net.plans->plan(Phase::train, 6);
  executor.reserve(plan);
  const auto algorithms = executor.algorithms();
  CHECK_FALSE(algorithms.empty());
  backend.broken = true;
  const Plan& larger = net.plans->plan(Phase::test, 6);
  CHECK_THROWS_WITH(executor.reserve(larger), "cannot bind");
  CHECK_THROWS_WITH(executor.run(larger, net.inputs), "cannot bind");
  CHECK(executor.algorithms() == algorithms);
  CHECK(executor.run(plan, net.inputs).finite());
  backend.broken = false;
  CHECK(executor.run(larger, net.inputs).finite());
}

TEST_CASE("a step that stalls ends with a report of who waits for whom") {
  const auto gate = std::make_shared<Gate>();
  TwoDevices net;
  const Plan& plan = net.plans->plan(Phase::train, 6);
  // Device 1 never ends its first backward task.
  const auto found = std::find_if(plan.tasks.begin(), plan.tasks.end(), [](const Task& task) {
    return task.kind == TaskKind::backward && task.device == DeviceId(1);
  });
  const TaskId stuck(found - plan.tasks.begin());
  std::string report;
  {
    Executor executor(*net.plans, *net.backend, {4, 7}, 0.3);
    executor.run(plan, net.inputs);  // all is well without
    try {
      executor.run(plan, net.inputs, nullptr, [gate, stuck](TaskId t) {
        if (t == stuck) gate->wait();
      });
    } catch (const RunError& error) {
      report = error.what();
    }
  }
  gate->release();
  INFO(report);
  CHECK(report.find("stalled: no task has ended for") != std::string::npos);
  CHECK(report.find("device 1 (physical 7) runs task " + std::to_string(stuck.value()) + " (" +
                    describe(plan, plan.tasks[stuck], net.graph)) != std::string::npos);
  CHECK(report.find("device 0 (physical 4) waits in task") != std::string::npos);
  CHECK(report.find("reduce-scatter+update") != std::string::npos);
  CHECK(report.find("last done:") != std::string::npos);
}

TEST_CASE("what a task throws on one device ends the step on all") {
  TwoDevices net;
  const Plan& plan = net.plans->plan(Phase::train, 6);
  Executor executor(*net.plans, *net.backend, {0, 1});
  for (const TaskId t : plan.tasks.ids()) {
    INFO(describe(plan, plan.tasks[t], net.graph));
    CHECK_THROWS_WITH(executor.run(plan, net.inputs, nullptr,
                                   [t](TaskId task) {
                                     if (task == t) throw std::runtime_error("broken");
                                   }),
                      "broken");
  }
  CHECK(executor.run(plan, net.inputs).finite());
}

TEST_CASE("a cost that is not finite on one device stops the updates of all") {
  TwoDevices net;
  const Plan& plan = net.plans->plan(Phase::train, 6);
  Executor executor(*net.plans, *net.backend, {0, 1});
  executor.reserve(plan);
  for (Rates& r : net.inputs.rates) r = {0.1F, 0.9F, 0, 0};
  std::vector<std::vector<float>> before;
  for (const WeightBuffers& w : net.plans->weights()) {
    std::vector<float> values(
        static_cast<std::size_t>(element_count(net.graph.weight({w.node, w.index}).dims)), 0.1F);
    executor.write_weights(w, values);
    before.push_back(std::move(values));
  }
  // The last image is the second replica's.
  net.batch.data.back() = std::nanf("");
  const StepResult result = executor.run(plan, net.inputs);
  CHECK_FALSE(result.finite());
  for (std::size_t i = 0; i < before.size(); ++i) {
    INFO(net.plans->weights()[i].name);
    CHECK(executor.read_weights(net.plans->weights()[i]) == before[i]);
  }
}

TEST_CASE("all replicas have the same weights after a step") {
  TwoDevices net;
  const Plan& plan = net.plans->plan(Phase::train, 6);
  Executor executor(*net.plans, *net.backend, {0, 1});
  executor.reserve(plan);
  for (Rates& r : net.inputs.rates) r = {0.1F, 0.9F, 0.01F, 0};
  for (const WeightBuffers& w : net.plans->weights()) {
    const auto count = static_cast<std::size_t>(element_count(net.graph.weight({w.node, w.index}).dims));
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(0.01F * static_cast<float>(i % 7));
    executor.write_weights(w, values);
  }
  executor.run(plan, net.inputs);
  for (const WeightBuffers& w : net.plans->weights()) {
    INFO(w.name);
    REQUIRE(w.weights.size() == 2);
    CHECK(executor.read(nullptr, w.weights[0]) == executor.read(nullptr, w.weights[1]));
  }
}
