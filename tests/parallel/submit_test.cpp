// Steps that are submitted ahead of others give the same results, in order, and errors concern one step
// alone.
#include <atomic>

#include "tests/parallel/placed_nets.h"
#include "tests/wrapped_backend.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Makes nets on one device, on devices that reach each other and on devices that do not: emulated GPUs with
/// odd and even numbers do not, and their steps cannot be recorded.
std::vector<PlacedNet> submitted_nets() {
  const NetTexts column = column_net(Normalised::nowhere);
  std::vector<PlacedNet> nets = {{"one device", column, column, {}}};
  for (const std::string gpu : {"0,1", "0,2"}) {
    nets.push_back(place("devices " + gpu, column, 2, {{"conv1", "0,1"}}));
    nets.back().options.gpu = gpu;
  }
  return nets;
}

struct Submitted {
  Phase phase = Phase::train;
  Minibatch batch;
};

/// Makes steps of several plans, that with most images first.
std::vector<Submitted> steps_of_several_plans() {
  std::vector<Submitted> steps;
  for (std::uint64_t i = 0; i < 14; ++i) {
    const bool tests = i == 6 || i == 9 || i == 10;
    const std::int64_t images = i == 8 || i == 12 ? 3 : 7;
    steps.push_back({tests ? Phase::test : Phase::train, random_minibatch(kImage, images, kClasses, i)});
  }
  return steps;
}

enum class Ahead { nothing, matrices, steps };

/// Runs the steps; `ahead` says what is known of a step while the one before runs.
Trained run_all(SmallNet& net, const std::vector<Submitted>& steps, Ahead ahead) {
  const auto plan = [&](std::size_t i) -> const Plan& {
    return net.prepare(steps[i].phase, steps[i].batch.images());
  };
  const auto inputs = [&](std::size_t i) { return net.inputs_of(steps[i].batch, i); };
  Trained trained;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (net.net().in_flight() == 0) net.net().submit(plan(i), inputs(i));
    if (ahead == Ahead::steps && i + 1 < steps.size()) net.net().submit(plan(i + 1), inputs(i + 1));
    if (ahead == Ahead::matrices && i + 1 < steps.size())
      net.net().expect(plan(i + 1), inputs(i + 1).matrices);
    trained.costs.push_back(net.net().wait().costs);
  }
  trained.tensors = net.tensors();
  return trained;
}

/// An operation that throws once it is armed, and disarms itself.
class BreakingOp : public PreparedOp {
 public:
  BreakingOp(std::shared_ptr<const PreparedOp> op, std::atomic<bool>& armed)
      : op_(std::move(op)), armed_(armed) {
    args_ = op_->args();
    workspace_bytes_ = op_->workspace_bytes();
  }
  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override {
    if (armed_.exchange(false)) throw std::runtime_error("broken");
    op_->run(pointers, workspace, queue);
  }

 private:
  std::shared_ptr<const PreparedOp> op_;
  std::atomic<bool>& armed_;
};

/// A recording that throws as BreakingOp does, which a recorded step does not call.
class BreakingRecording : public Recording {
 public:
  BreakingRecording(std::unique_ptr<Recording> inner, std::atomic<bool>& armed)
      : inner_(std::move(inner)), armed_(armed) {}
  void play(Queue& queue) const override {
    if (armed_.exchange(false)) throw std::runtime_error("broken");
    inner_->play(queue);
  }

 private:
  std::unique_ptr<Recording> inner_;
  std::atomic<bool>& armed_;
};

class BreakingBackend : public WrappedBackend {
 public:
  BreakingBackend(std::unique_ptr<Backend> inner, std::atomic<bool>& armed)
      : WrappedBackend(std::move(inner)), armed_(armed) {}
  std::shared_ptr<const PreparedOp> bind(const OpDesc& op, const OpForm& form, int device) const override {
    return std::make_shared<BreakingOp>(WrappedBackend::bind(op, form, device), armed_);
  }
  std::unique_ptr<Recording> record(std::span<Queue* const> queues,
                                    const std::function<void()>& submit) const override {
    auto recording = WrappedBackend::record(queues, submit);
    return recording ? std::make_unique<BreakingRecording>(std::move(recording), armed_) : nullptr;
  }

 private:
  std::atomic<bool>& armed_;
};

}  // namespace

TEST_CASE("steps submitted ahead give the same results, in order") {
  const std::vector<Submitted> steps = steps_of_several_plans();
  for (const PlacedNet& placed : submitted_nets()) {
    INFO(placed.name);
    const auto trained = [&](Ahead ahead) {
      SmallNet net(placed.placed, kImage, kClasses, placed.options);
      net.prepare(Phase::test, 7);
      net.prepare(Phase::train, 7);
      return run_all(net, steps, ahead);
    };
    const Trained one_by_one = trained(Ahead::nothing);
    for (std::size_t i = 1; i < steps.size(); ++i) CHECK(one_by_one.costs[i] != one_by_one.costs[i - 1]);
    check_same_bits(trained(Ahead::matrices), one_by_one);
    check_same_bits(trained(Ahead::steps), one_by_one);
  }
}

TEST_CASE("a minibatch that comes again may be expected and then submitted ahead") {
  for (const PlacedNet& placed : submitted_nets()) {
    INFO(placed.name);
    SmallNet small(placed.placed, kImage, kClasses, placed.options),
        other(placed.placed, kImage, kClasses, placed.options);
    const Plan& plan = small.prepare(Phase::train, 7);
    Net& net = small.net();
    const Minibatch batch = random_minibatch(kImage, 7, kClasses, 1);
    net.submit(plan, small.inputs_of(batch, 0));
    for (std::uint64_t i = 0; i < 8; ++i) {
      const StepInputs next = small.inputs_of(batch, i + 1);
      net.expect(plan, next.matrices);
      net.submit(plan, next);
      std::vector<double> costs = net.wait().costs;
      costs.erase(costs.begin());
      CHECK(costs == other.step(Phase::train, batch, i).costs);
    }
    net.wait();
  }
}

TEST_CASE("a third step is refused, and the two in flight are not disturbed") {
  for (const PlacedNet& placed : submitted_nets()) {
    INFO(placed.name);
    SmallNet net(placed.placed, kImage, kClasses, placed.options),
        other(placed.placed, kImage, kClasses, placed.options);
    const Plan& plan = net.prepare(Phase::train, 7);
    Executor& executor = net.net().executor();
    CHECK_THROWS_AS(executor.wait(), std::logic_error);
    for (std::uint64_t i = 0; i < 8; i += 2) {
      const Minibatch first = random_minibatch(kImage, 7, kClasses, i),
                      second = random_minibatch(kImage, 7, kClasses, i + 1);
      const StepInputs inputs = net.inputs_of(second, i + 1);
      net.net().submit(plan, net.inputs_of(first, i));
      CHECK_THROWS_AS(net.net().run(plan, inputs), std::logic_error);
      CHECK_THROWS_AS(executor.run(plan, inputs), std::logic_error);
      CHECK_THROWS_AS(net.prepare(Phase::train, 64), std::logic_error);  // its memory is in use
      net.net().submit(plan, inputs);
      CHECK_THROWS_AS(net.net().submit(plan, inputs), std::logic_error);
      CHECK_THROWS_AS(net.net().expect(plan, inputs.matrices), std::logic_error);
      CHECK(net.net().in_flight() == 2);
      std::vector<double> costs = net.net().wait().costs;
      costs.erase(costs.begin());
      CHECK(costs == other.step(Phase::train, first, i).costs);
      costs = net.net().wait().costs;
      costs.erase(costs.begin());
      CHECK(costs == other.step(Phase::train, second, i + 1).costs);
      CHECK(net.net().in_flight() == 0);
    }
  }
}

TEST_CASE("an error in the first of two steps in flight leaves the second") {
  for (const PlacedNet& placed : submitted_nets()) {
    INFO(placed.name);
    std::atomic<bool> armed = false;
    NetOptions breaking = placed.options;
    breaking.wrap = [&](std::unique_ptr<Backend> inner) {
      return std::make_unique<BreakingBackend>(std::move(inner), armed);
    };
    SmallNet net(placed.placed, kImage, kClasses, breaking),
        other(placed.placed, kImage, kClasses, placed.options);
    const Plan& plan = net.prepare(Phase::train, 7);
    std::vector<Minibatch> batches;
    for (std::uint64_t i = 0; i < 12; ++i) batches.push_back(random_minibatch(kImage, 7, kClasses, i));
    // At first steps are not recorded, then they are.
    for (std::size_t i = 0; i < batches.size(); i += 3) {
      armed = true;
      net.net().submit(plan, net.inputs_of(batches[i], i));
      net.net().submit(plan, net.inputs_of(batches[i + 1], i + 1));
      CHECK_THROWS_WITH(net.net().wait(), "broken");
      CHECK_FALSE(armed);
      CHECK(net.net().in_flight() == 1);
      for (std::size_t good = i + 1; good < i + 3; ++good) {
        if (good == i + 2) net.net().submit(plan, net.inputs_of(batches[good], good));
        std::vector<double> costs = net.net().wait().costs;
        costs.erase(costs.begin());
        CHECK(costs == other.step(Phase::train, batches[good], good).costs);
      }
    }
    for (const auto& [name, tensor] : other.tensors()) {
      INFO(name);
      CHECK(net.tensors().at(name).values == tensor.values);
    }
  }
}

TEST_CASE("a step runs behind one whose cost is not finite as it does when that one was waited for") {
  for (const PlacedNet& placed : submitted_nets()) {
    INFO(placed.name);
    std::vector<Submitted> steps;
    for (std::uint64_t i = 0; i < 8; ++i) {
      steps.push_back({Phase::train, random_minibatch(kImage, 7, kClasses, i)});
      if (i % 2 == 0) steps.back().batch.data.front() = std::nanf("");
    }
    const auto trained = [&](Ahead ahead) {
      SmallNet net(placed.placed, kImage, kClasses, placed.options);
      net.prepare(Phase::train, 7);
      return run_all(net, steps, ahead);
    };
    const Trained one_by_one = trained(Ahead::nothing), ahead = trained(Ahead::steps);
    CHECK(ahead.tensors.size() == one_by_one.tensors.size());
    for (const auto& [name, tensor] : ahead.tensors) {
      INFO(name);
      CHECK(tensor.values == one_by_one.tensors.at(name).values);
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      INFO("step " << i);
      CHECK((ahead.costs[i].at(0) == 0) == (i % 2 == 1));
      if (i % 2 == 1) CHECK(ahead.costs[i] == one_by_one.costs[i]);
    }
  }
}

TEST_CASE("nothing is submitted ahead where updates span minibatches") {
  NetTexts texts = column_net(Normalised::nowhere);
  CHECK(SmallNet(texts, kImage, kClasses).net().submits_ahead());
  texts.parameters = with_update_period(texts.parameters, 2);
  SmallNet small(texts, kImage, kClasses);
  Net& net = small.net();
  const Plan& plan = small.prepare(Phase::train, 7);
  CHECK_FALSE(net.submits_ahead());
  const Minibatch batch = random_minibatch(kImage, 7, kClasses, 1);
  for (std::uint64_t i = 0; i < 4; ++i) {
    net.submit(plan, small.inputs_of(batch, i));
    CHECK_THROWS_AS(net.submit(plan, small.inputs_of(batch, i + 1)), std::logic_error);
    net.expect(plan, small.inputs_of(batch, i + 1).matrices);
    CHECK(net.wait().finite());
    CHECK(net.windows().empty() == (i % 2 == 1));
  }
}
