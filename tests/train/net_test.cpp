// A net as the trainer holds it: reproducible, independent of threads and of how a test is cut.
#include "convnet/net/net.h"

#include "tests/catch.h"
#include "tests/layers/small_net.h"
#include "tests/wrapped_backend.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const Dims kImage = {3, 16, 16};
constexpr int kClasses = 5;

NetTexts net_with_everything() {
  return between_data_and_cost(
      "[conv1]\ntype=conv\ninputs=data\nchannels=3\nfilters=20\nfilterSize=5\npadding=2\ninitW=0.1\nneuron="
      "relu\n"
      "[norm1]\ntype=cmrnorm\ninputs=conv1\nchannels=20\nsize=5\n"
      "[pool1]\ntype=pool\npool=max\ninputs=norm1\nchannels=20\nsizeX=3\nstride=2\n"
      "[conv2]\ntype=conv\ninputs=pool1\nchannels=20\nfilters=16\ngroups=2\nfilterSize=3\npadding=1\ninitW=0."
      "1\nneuron=tanh[1,1]\n"
      "[pool2]\ntype=pool\npool=avg\ninputs=conv2\nchannels=32\nsizeX=2\nstride=2\n"
      "[fc1]\ntype=fc\ninputs=pool2\noutputs=24\ninitW=0.1\nneuron=relu\n[drop]\ntype=dropout\ninputs=fc1\n",
      "drop", kClasses, "[norm1]\nscale=0.5\npow=0.75\n");
}

/// Keeps the most bytes of devices that were allocated at a time.
class MeteredBackend : public WrappedBackend {
 public:
  MeteredBackend(std::unique_ptr<Backend> inner, std::shared_ptr<std::int64_t> most)
      : WrappedBackend(std::move(inner)), most_(std::move(most)) {}
  std::unique_ptr<DeviceMemory> allocate(int device, std::int64_t bytes) const override {
    *now_ += bytes;
    *most_ = std::max(*most_, *now_);
    return std::make_unique<Memory>(WrappedBackend::allocate(device, bytes), now_);
  }

 private:
  struct Memory : DeviceMemory {
    Memory(std::unique_ptr<DeviceMemory> m, std::shared_ptr<std::int64_t> n)
        : inner(std::move(m)), now(std::move(n)) {}
    ~Memory() override { *now -= inner->bytes(); }
    std::byte* data() override { return inner->data(); }
    std::int64_t bytes() const override { return inner->bytes(); }
    std::unique_ptr<DeviceMemory> inner;
    std::shared_ptr<std::int64_t> now;
  };

  std::shared_ptr<std::int64_t> most_, now_ = std::make_shared<std::int64_t>(0);
};

/// A target whose matrix products say that they have an argument more than they have, so that plans for it
/// are wrong.
struct WrongTarget : WrappedTarget {
  using WrappedTarget::WrappedTarget;
  OpForm form(const OpDesc& op, const LayoutHints& hints) const override {
    OpForm form = WrappedTarget::form(op, hints);
    if (op_name(op) == "inner_product.forward") form.args.push_back(form.args[0]);
    return form;
  }
};

std::map<std::string, NamedTensor> trained(const NetOptions& options, std::vector<double>* costs = nullptr) {
  SmallNet net(net_with_everything(), kImage, kClasses, options);
  for (std::uint64_t i = 0; i < 3; ++i) {
    const StepOutcome outcome = net.step(Phase::train, random_minibatch(kImage, 13, kClasses, i), i);
    if (costs != nullptr) costs->insert(costs->end(), outcome.costs.begin(), outcome.costs.end());
  }
  return net.tensors();
}

/// ||a - b|| / ||b||
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 1e-30;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / norm);
}

}  // namespace

TEST_CASE("the same seed gives the same bits, another seed another net") {
  for (const int threads : {1, 2}) {
    NetOptions options;
    options.threads = threads;
    std::vector<double> costs, costs_again, costs_other;
    const auto first = trained(options, &costs);
    const auto again = trained(options, &costs_again);
    options.seed = 4;
    const auto other = trained(options, &costs_other);
    CHECK(costs == costs_again);
    CHECK(costs != costs_other);
    for (const auto& [name, tensor] : first) {
      INFO(name);
      CHECK(tensor.values == again.at(name).values);
      CHECK(tensor.values != other.at(name).values);
    }
  }
}

TEST_CASE("one and two threads agree") {
  NetOptions two;
  two.threads = 2;
  const auto b = trained(two);
  for (const auto& [name, tensor] : trained({})) {
    INFO(name);
    CHECK(distance(b.at(name).values, tensor.values) < 1e-5);
  }
}

TEST_CASE("a test's costs do not depend on how its images are cut") {
  SmallNet net(net_with_everything(), kImage, kClasses);
  const Minibatch all = random_minibatch(kImage, 12, kClasses, 77);
  net.step(Phase::train, all, 0);
  const std::vector<double> whole = net.step(Phase::test, all, 1).costs;
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{6, 6}, {5, 7}, {1, 11}, {4, 4, 3, 1}}) {
    std::vector<double> sum(whole.size(), 0.0);
    std::int64_t first = 0;
    for (const std::int64_t n : sizes) {
      Minibatch part;
      const std::int64_t size = element_count(kImage);
      part.data.assign(all.data.begin() + first * size, all.data.begin() + (first + n) * size);
      part.labels.assign(all.labels.begin() + first, all.labels.begin() + first + n);
      const StepOutcome outcome = net.step(Phase::test, part, 1);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += outcome.costs[i];
      first += n;
    }
    REQUIRE(first == 12);
    CHECK(sum[0] == Approx(whole[0]).epsilon(1e-6));
    CHECK(sum[1] == whole[1]);
    CHECK(sum[2] == whole[2]);
  }
}

TEST_CASE("a short minibatch averages over the images it has") {
  SmallNet net(net_with_everything(), kImage, kClasses);
  net.step(Phase::train, random_minibatch(kImage, 13, kClasses, 0), 0);
  reference::NetReference reference = net.reference();
  const Minibatch last = random_minibatch(kImage, 3, kClasses, 1);
  net.step(Phase::train, last, 1);
  reference.forward({last.data.begin(), last.data.end()}, {last.labels.begin(), last.labels.end()}, true, 1);
  reference.backward();
  reference.update();
  const auto tensors = net.tensors();
  for (const auto& [name, matrix] : reference.matrices) {
    INFO(name);
    CHECK(relative_difference(tensors.at(name).values, matrix.values) < 1e-4);
  }
}

TEST_CASE("initial weights have the stated mean and deviation, whatever the first plan is") {
  const NetTexts texts = between_data_and_cost(
      "[conv1]\ntype=conv\ninputs=data\nchannels=3\nfilters=64\nfilterSize=5\ninitW=0.02\ninitB=0.5\n",
      "conv1", kClasses);
  SmallNet trains(texts, kImage, kClasses), tests(texts, kImage, kClasses);
  trains.prepare(Phase::train, 7);
  tests.prepare(Phase::test, 1);
  const auto a = trains.tensors(), b = tests.tensors();
  for (const auto& [name, tensor] : a) CHECK(tensor.values == b.at(name).values);
  double sum = 0, squares = 0;
  const std::vector<float>& w = a.at("conv1.weights.data").values;
  for (const float v : w) {
    sum += static_cast<double>(v);
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  const auto count = static_cast<double>(w.size());
  REQUIRE(count == 64 * 3 * 25);
  CHECK(std::abs(sum / count) < 4 * 0.02 / std::sqrt(count));
  CHECK(std::sqrt(squares / count) == Approx(0.02).epsilon(0.05));
  for (const float v : a.at("conv1.biases").values) CHECK(v == 0.5F);
  for (const float v : a.at("conv1.weightsInc.data").values) CHECK(v == 0.0F);
}

TEST_CASE("initial weights that fp32 does not hold are refused") {
  SmallNet net(between_data_and_cost("[f]\ntype=fc\ninputs=data\noutputs=70\ninitW=3e38\n", "f", 4), {6}, 4);
  CHECK_THROWS_WITH(net.prepare(Phase::train, 2),
                    "net.cfg:7: f.weights.data: initW of 3e+38 makes weights that fp32 does not hold");
}

TEST_CASE("weights stored by one net load into another") {
  SmallNet from(net_with_everything(), kImage, kClasses);
  const Minibatch batch = random_minibatch(kImage, 4, kClasses, 2);
  from.step(Phase::train, batch, 0);
  TensorFile file;
  from.net().store(file);
  SmallNet to(net_with_everything(), kImage, kClasses);
  to.prepare(Phase::test, 2);
  to.net().load(file, "f");
  CHECK(to.step(Phase::test, batch, 1).costs == from.step(Phase::test, batch, 1).costs);
  from.step(Phase::train, batch, 1);
  to.step(Phase::train, batch, 1);
  const auto a = from.tensors();
  for (const auto& [name, tensor] : to.tensors()) CHECK(tensor.values == a.at(name).values);

  TensorFile short_of_one = file;
  short_of_one.tensors.erase("conv2.biases");
  CHECK_THROWS_WITH(to.net().load(short_of_one, "f"),
                    "f: has no tensor 'conv2.biases', which this net needs");
  file.tensors.at("fc1.biases").dims = {3};
  CHECK_THROWS_WITH(to.net().load(file, "f"), "f: tensor 'fc1.biases' is 3, but this net needs 24");
}

TEST_CASE("what is not finite is found and named, and nothing is updated") {
  const Dims image = {6};
  SmallNet net(
      between_data_and_cost("[f]\ntype=fc\ninputs=data\noutputs=7\ninitW=0.3\nneuron=tanh[1,1]\n", "f", 4),
      image, 4);
  const Minibatch good = random_minibatch(image, 4, 4, 2);
  net.step(Phase::train, good, 0);
  const auto before = net.tensors();
  Minibatch bad = good;
  bad.data[5] = std::numeric_limits<float>::quiet_NaN();
  StepInputs inputs;
  inputs.matrices = {reinterpret_cast<const std::byte*>(bad.data.data()),
                     reinterpret_cast<const std::byte*>(bad.labels.data())};
  inputs.iteration = 1;
  inputs.rates = net.net().rates(0);
  CHECK_FALSE(net.net().executor().run(net.prepare(Phase::train, 4), inputs).finite());
  for (const auto& [name, tensor] : net.tensors()) CHECK(tensor.values == before.at(name).values);
  CHECK(net.net().first_non_finite(Phase::train, 4, inputs).text ==
        "the data set itself has such numbers, where layer 'data' reads it");

  std::vector<float> broken = before.at("f.biases").values;
  broken[3] = std::numeric_limits<float>::infinity();
  net.set_weights("f.biases", broken);
  inputs.matrices[0] = reinterpret_cast<const std::byte*>(good.data.data());
  const std::string found = net.net().first_non_finite(Phase::train, 4, inputs).text;
  CHECK(found ==
        "'f.biases' is not finite after an update at the rate 0.1: this, or the gradient, is too large for "
        "fp32");
}

TEST_CASE("the search for what is not finite takes no second set of weights and increments") {
  const auto most = std::make_shared<std::int64_t>(0);
  NetOptions options;
  options.wrap = [&](std::unique_ptr<Backend> backend) {
    return std::make_unique<MeteredBackend>(std::move(backend), most);
  };
  // Nearly all of its memory is a matrix.
  SmallNet net(
      between_data_and_cost("[f]\ntype=fc\ninputs=data\noutputs=2000\ninitW=0.1\nneuron=relu\n", "f", 4),
      {500}, 4, options);
  Minibatch batch = random_minibatch({500}, 2, 4, 2);
  net.step(Phase::train, batch, 0);
  const std::int64_t before = *most;
  batch.data[5] = std::numeric_limits<float>::quiet_NaN();
  const StepInputs inputs = net.inputs_of(batch, 1);
  CHECK(net.net().first_non_finite(Phase::train, 2, inputs).text.find("the data set itself") !=
        std::string::npos);
  CHECK(*most < before + before / 4);
}

TEST_CASE("the search for what is not finite waits for steps in flight") {
  SmallNet net(net_with_everything(), kImage, kClasses);
  const Minibatch good = random_minibatch(kImage, 4, kClasses, 2);
  Minibatch bad = good;
  bad.data[5] = std::numeric_limits<float>::quiet_NaN();
  const Plan& plan = net.prepare(Phase::train, 4);
  net.net().submit(plan, net.inputs_of(bad, 0));
  net.net().submit(plan, net.inputs_of(good, 1));
  CHECK_FALSE(net.net().wait().finite());
  CHECK(net.net().first_non_finite(Phase::train, 4, net.inputs_of(bad, 0)).text ==
        "the data set itself has such numbers, where layer 'data' reads it");
  CHECK(net.net().in_flight() == 0);
}

TEST_CASE(
    "a number that is not finite shows in the step's result even where a fused relu hides it from the cost") {
  SmallNet net(net_with_everything(), kImage, kClasses);
  Minibatch bad = random_minibatch(kImage, 4, kClasses, 2);
  bad.data[5] = std::numeric_limits<float>::quiet_NaN();
  StepInputs inputs;
  inputs.matrices = {reinterpret_cast<const std::byte*>(bad.data.data()),
                     reinterpret_cast<const std::byte*>(bad.labels.data())};
  inputs.rates = net.net().rates(0);
  const Plan& plan = net.prepare(Phase::train, 4);
  CHECK_FALSE(net.net().executor().run(plan, inputs).finite());
}

TEST_CASE("a net does not run a plan that is wrong") {
  NetOptions options;
  options.wrap = [](std::unique_ptr<Backend> inner) {
    return std::make_unique<BackendWithTarget<WrongTarget>>(std::move(inner));
  };
  SmallNet net(net_with_everything(), kImage, kClasses, options);
  CHECK_THROWS_WITH(net.prepare(Phase::train, 8), Catch::Contains("plan is wrong"));
}
