// --check-grads: right gradients are never called wrong, whatever saturates or has kinks; gradients that are
// a few percent off are.
#include <random>

#include "convnet/net/gradient_judge.h"
#include "tests/layers/against_reference.h"
#include "tests/layers/random_nets.h"
#include "tests/wrapped_backend.h"

using namespace convnet;
using namespace convnet::test;

namespace {

constexpr int kGradientClasses = 4;
constexpr std::int64_t kImages = 5;

const std::vector<ExtraMatrix>& extra() {
  static const std::vector<ExtraMatrix> matrices = {{kGradientClasses, ExtraMatrix::one_hot},
                                                    {5, ExtraMatrix::multi_hot}};
  return matrices;
}

/// An operation that gets a result wrong by a factor.
class WrongOp : public PreparedOp {
 public:
  WrongOp(std::shared_ptr<const PreparedOp> op, std::size_t result, float factor)
      : op_(std::move(op)), result_(result), factor_(factor) {
    args_ = op_->args();
    workspace_bytes_ = op_->workspace_bytes();
  }
  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override {
    op_->run(pointers, workspace, queue);
    auto* values = reinterpret_cast<float*>(pointers[result_]);
    for (std::int64_t i = 0; i < args_[result_].bytes() / size_of(DataType::f32); ++i) values[i] *= factor_;
  }

 private:
  std::shared_ptr<const PreparedOp> op_;
  std::size_t result_;
  float factor_;
};

class CheckedNet {
 public:
  CheckedNet(const NetTexts& texts, const Dims& image, std::uint64_t seed = 1)
      : net_(texts, image, kGradientClasses, options(seed)),
        batch_(random_minibatch(image, kImages, kGradientClasses, seed, extra())) {}

  /// Makes all gradients of the matrices of `layer` wrong by a factor.
  void spoil(const std::string& layer, float factor) {
    // The net keeps its plans to itself, but they are not const, and not bound yet.
    auto& plans = const_cast<PlanSet&>(net_.net().plans());
    auto& plan = const_cast<Plan&>(plans.plan(Phase::check, kImages));
    int spoiled = 0;
    for (Task& task : plan.tasks) {
      if (!task.node.exists() || task.kind != TaskKind::backward) continue;
      if (net_.graph().nodes[task.node].name != layer) continue;
      std::vector<std::size_t> results;
      for (std::size_t k = 0; k < task.uses.size(); ++k) {
        const Buffer& b = plan.buffers[task.uses[k].buffer];
        if (task.uses[k].access != Access::read && b.kind == BufferKind::weights_gradient)
          results.push_back(k);
      }
      if (results.empty()) continue;
      task.form.change().algorithm = backend_->mark([results, factor](std::shared_ptr<const PreparedOp> op) {
        for (const std::size_t k : results) op = std::make_shared<WrongOp>(std::move(op), k, factor);
        return op;
      });
      ++spoiled;
    }
    if (spoiled == 0) throw std::logic_error("no gradients of " + layer);
  }

  std::vector<GradientReport> check() {
    net_.prepare(Phase::check, kImages);
    StepInputs inputs;
    inputs.matrices = {reinterpret_cast<const std::byte*>(batch_.data.data()),
                       reinterpret_cast<const std::byte*>(batch_.labels.data())};
    for (const std::vector<float>& matrix : batch_.extra)
      inputs.matrices.push_back(reinterpret_cast<const std::byte*>(matrix.data()));
    inputs.rates = net_.net().rates(0);
    return net_.net().check_gradients(kImages, inputs);
  }

 private:
  NetOptions options(std::uint64_t seed) {
    NetOptions options;
    options.wrap = [this](std::unique_ptr<Backend> devices) {
      auto wrapped = std::make_unique<MarkingBackend>(std::move(devices));
      backend_ = wrapped.get();
      return wrapped;
    };
    options.extra = extra();
    options.seed = seed;
    return options;
  }

  MarkingBackend* backend_ = nullptr;  ///< the net's
  SmallNet net_;
  Minibatch batch_;
};

void check_all_right(const std::string& layers, const std::string& top, const std::string& parameters) {
  INFO(layers);
  const std::vector<GradientReport> reports =
      CheckedNet(between_data_and_cost(layers, top, kGradientClasses, parameters), {3, 5, 5}).check();
  CHECK(!reports.empty());
  for (const GradientReport& report : reports) {
    INFO(report.name << ", error " << report.error);
    CHECK(report.verdict == Verdict::right);
  }
}

std::string data_layers() {
  return section("onehot", "data", "dataIdx=2") + section("tags", "data", "dataIdx=3");
}

/// Returns a net of random layers, with kinks if `kinks`, and with weights so large that logistics and
/// softmax saturate if `saturated`.
NetTexts random_net(std::uint32_t seed, bool kinks, bool saturated) {
  std::mt19937 lot(seed);
  const auto below = [&](std::uint32_t count) { return lot() % count; };
  const auto neuron = [&] {
    const std::vector<std::string> smooth = {"tanh[1,1]", "logistic", "softrelu"},
                                   kinked = {"relu", "abs", "brelu[2]", "logistic", "abstanh[1,1]"};
    const std::vector<std::string>& all = kinks ? kinked : smooth;
    return " neuron=" + all[below(static_cast<std::uint32_t>(all.size()))];
  };
  const auto scale = [&] {
    const std::vector<std::string> small = {"0.1", "0.3"}, large = {"0.3", "2", "8", "30"};
    const std::vector<std::string>& all = saturated ? large : small;
    return " initW=" + all[below(static_cast<std::uint32_t>(all.size()))];
  };
  std::string layers = data_layers();
  layers +=
      section("c", "conv", "inputs=data channels=3 filters=6 filterSize=3 padding=1" + scale() + neuron());
  std::string top = "c";
  if (below(2) == 0) {
    layers += section("p", "pool",
                      "inputs=c channels=6 sizeX=3 stride=2 pool=" + std::string(kinks ? "max" : "avg"));
    top = "p";
  }
  if (below(2) == 0) {
    layers += section("b", "bnorm", "inputs=" + top + " epsilon=0.01" + neuron());
    top = "b";
  }
  layers += section("f", "fc", "inputs=" + top + " outputs=7" + scale() + neuron());
  layers += section("g", "fc", "inputs=f outputs=5 neuron=logistic" + scale());
  layers += section("h", "fc", "inputs=f outputs=4" + scale()) + section("q", "softmax", "inputs=h");
  layers += section("bce", below(2) == 0 ? "cost.bce" : "cost.dce", "inputs=tags,g");
  layers += section("ce", "cost.crossent", "inputs=onehot,q");
  return between_data_and_cost(layers, below(2) == 0 ? "f" : "f,g", kGradientClasses,
                               "[bce]\ncoeff=0.5\nposWeight=2\n[ce]\ncoeff=0.7\n");
}

CheckedLine line(const std::function<double(double)>& objective,
                 const std::function<double(double)>& derivative) {
  return {objective, derivative, 1, 0};
}

}  // namespace

TEST_CASE("derivatives that are a few percent off are wrong") {
  const auto curve = [](double x) { return 2 + std::sin(1 + x) + 0.5 * x * x; };
  const auto slope = [](double x) { return std::cos(1 + x) + x; };
  const auto fp32 = [&](double x) { return static_cast<double>(static_cast<float>(curve(x))); };
  for (const double factor : {0.5, 0.9, 0.95, 0.98, 0.99, 1.0, 1.01, 1.02, 1.05, 1.1, 2.0, -1.0, 0.0}) {
    INFO(factor);
    for (const auto& objective : std::vector<std::function<double(double)>>{curve, fp32}) {
      const Judgement report = judge_derivative(line(objective, [&](double x) { return factor * slope(x); }));
      CHECK(report.verdict == (factor == 1.0 ? Verdict::right : Verdict::wrong));
    }
  }
}

TEST_CASE("a derivative that rounding or kinks hide is not called wrong") {
  // A sum of logistics so steep that fp32 has few values between 0 and 1.
  const auto stairs = [](double x) { return std::round((3 + 0.01 * x) * 2e5) / 2e5; };
  CHECK(judge_derivative(line(stairs, [](double) { return 0.01; })).verdict != Verdict::wrong);
  std::mt19937 lot(7);
  for (int i = 0; i < 50; ++i) {
    std::vector<double> kinks;
    for (int k = 0; k < 40; ++k) kinks.push_back((static_cast<double>(lot()) / 0x1p32 - 0.5) * 0.1);
    kinks.push_back(0);
    const auto bends = [&](double x) {
      double sum = 1;
      for (double k : kinks) sum += std::max(0.0, x - k);
      return sum;
    };
    const auto slope = [&](double x) {
      double sum = 0;
      for (double k : kinks) sum += x > k ? 1 : 0;
      return sum;
    };
    CHECK(judge_derivative(line(bends, slope)).verdict != Verdict::wrong);
  }
}

TEST_CASE("a derivative that short steps confirm is not called wrong for what lies far away") {
  // Short steps are rounded, and long ones meet steps of the function that no derivative shows.
  for (const double rounding : {317, 401, 523, 611, 787, 907}) {
    INFO(rounding);
    const auto far_steps = [&](double x) {
      return std::round((1 + x + 0.25 * std::round(2 * x)) * rounding) / rounding;
    };
    const Judgement found = judge_derivative({far_steps, [](double) { return 1.0; }, 100, 0});
    CHECK(found.verdict != Verdict::wrong);
    // What is unclear is not said to be without an error.
    CHECK((found.verdict == Verdict::right || found.error > 0));
  }
}

TEST_CASE("gradient checks hold the labels of a cost constant where layers make them") {
  const std::string teacher = fc("t", "inputs=data outputs=4") + section("s", "softmax", "inputs=t") +
                              section("own", "cost.logreg", "inputs=labels,s");
  const std::string student =
      fc("f", "inputs=data outputs=6 neuron=tanh[1,1]") + fc("q", "inputs=f outputs=4");
  const std::string costs = "[own]\ncoeff=0.5\n[x]\ncoeff=2\n";
  check_all_right(
      teacher + student + section("p", "softmax", "inputs=q") + section("x", "cost.crossent", "inputs=s,p"),
      "data", costs);
  // Not differentiated together.
  check_all_right(
      teacher + student + section("p", "softmax", "inputs=q") + section("x", "cost.crossent", "inputs=s,p"),
      "p", costs);
  for (const std::string type : {"cost.bce", "cost.dce"}) {
    const std::string logistic = section("p", "neuron", "inputs=q neuron=logistic");
    check_all_right(teacher + student + logistic + section("x", type, "inputs=s,p"), "data", costs);
    check_all_right(teacher + student + logistic + section("x", type, "inputs=s,p"), "p", costs);
  }
  // The same layers make labels and outputs.
  check_all_right(student + section("p", "softmax", "inputs=q") + fc("r", "inputs=f outputs=4") +
                      section("s", "softmax", "inputs=r") + section("x", "cost.crossent", "inputs=s,p"),
                  "s", "[x]\ncoeff=2\n");
}

TEST_CASE("gradients of smoothed labels and weighted classes are right") {
  const std::string student =
      fc("f", "inputs=data outputs=6 neuron=tanh[1,1]") + fc("q", "inputs=f outputs=4");
  const std::string costs = "[x]\ncoeff=2\nsmoothing=0.2\nclassWeights=1,2,0,0.5\n";
  for (const std::string top : {"data", "p"})  // differentiated together with the softmax, and not
    check_all_right(
        student + section("p", "softmax", "inputs=q") + section("x", "cost.logreg", "inputs=labels,p"), top,
        costs);
}

TEST_CASE("right gradients of saturated nets and of nets with kinks are not called wrong") {
  int unclear = 0, all = 0;
  for (std::uint32_t seed = 0; seed < 15; ++seed) {
    const NetTexts texts = random_net(seed, seed % 3 != 0, seed % 3 != 1);
    INFO(texts.definition);
    for (const GradientReport& report : CheckedNet(texts, {3, 6, 6}, seed + 1).check()) {
      INFO(report.name << ", error " << report.error);
      CHECK(report.verdict != Verdict::wrong);
      unclear += report.verdict == Verdict::unclear ? 1 : 0;
      ++all;
    }
  }
  INFO(unclear << " of " << all << " unclear");
  CHECK(5 * unclear < all);
}

TEST_CASE("right gradients of random nets of all layers are not called wrong") {
  RandomNets nets(11);
  int unclear = 0, all = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const NetTexts texts = nets.next();
    INFO(texts.definition);
    NetOptions options;
    options.extra = random_net_matrices();
    options.seed = seed;
    SmallNet net(texts, kRandomNetImage, kRandomNetClasses, options);
    const Minibatch batch =
        random_minibatch(kRandomNetImage, kImages, kRandomNetClasses, seed, random_net_matrices());
    net.prepare(Phase::check, kImages);
    for (const GradientReport& report : net.net().check_gradients(kImages, net.inputs_of(batch, 0))) {
      INFO(report.name << ", error " << report.error);
      CHECK(report.verdict != Verdict::wrong);
      unclear += report.verdict == Verdict::unclear ? 1 : 0;
      ++all;
    }
  }
  INFO(unclear << " of " << all << " unclear");
  CHECK(5 * unclear < all);
}

TEST_CASE("gradients that are a few percent off are found") {
  const std::vector<std::string> layers = {"c", "f", "g"};
  int found = 0, all = 0;
  for (std::uint32_t seed = 3; seed < 6; ++seed) {
    const NetTexts texts = random_net(seed, false, false);
    const std::string layer = layers[seed - 3];
    for (const float factor : {0.9F, 0.97F, 0.99F, 1.03F}) {
      INFO(texts.definition << layer << " times " << factor);
      CheckedNet net(texts, {3, 6, 6}, seed + 1);
      net.spoil(layer, factor);
      for (const GradientReport& report : net.check()) {
        INFO(report.name << ", error " << report.error);
        const bool spoiled = report.name.starts_with(layer + ".");
        if (spoiled && factor == 0.99F) {
          // As little as this is found more often than not.
          found += report.verdict == Verdict::wrong ? 1 : 0;
          ++all;
        } else {
          CHECK(report.verdict == (spoiled ? Verdict::wrong : Verdict::right));
        }
      }
    }
  }
  CHECK(2 * found > all);
}
