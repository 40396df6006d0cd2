// Optimisers, clipped gradients and averaged weights: the formulas in double precision, the same answer from
// several devices and hosts, and checkpoints that go on with the same bits.
#include "convnet/base/error.h"
#include "convnet/plan/verify.h"
#include "kernels/update_math.h"
#include "tests/every_case.h"
#include "tests/parallel/placed_nets.h"
#include "tests/parallel/reference_optimizer.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// The optimisers by their definitions, in double precision.
class Reference {
 public:
  Reference(SmallNet& net, Way way)
      : net_(net.reference()), way_(std::move(way)), optimizer_(way_.optimizer) {
    for (const auto& [name, m] : net_.matrices) averages_[name] = m.values;
  }

  void step(const Minibatch& batch, int number) {
    net_.forward(reference_inputs(batch), true, static_cast<std::uint64_t>(number - 1));
    net_.backward();
    const auto images = static_cast<double>(batch.images());
    double squares = 0;
    for (const auto& [name, m] : net_.matrices)
      if (m.learned()) squares += ReferenceOptimizer::squares_of(m.gradient) / (images * images);
    const double norm = std::sqrt(squares);
    const double clip = way_.clip_norm > 0 ? std::min(1.0, way_.clip_norm / (norm + 1e-6)) : 1;
    for (auto& [name, m] : net_.matrices) {
      if (m.learned()) {
        for (double& g : m.gradient) g *= clip / images;
        optimizer_.update(name, m, number);
      }
      const double share = number == 1 ? 1 : 1 - way_.ema;
      for (std::size_t i = 0; i < m.values.size(); ++i)
        averages_[name][i] += share * (m.values[i] - averages_[name][i]);
    }
  }

  reference::NetReference& net() { return net_; }
  const std::map<std::string, reference::Values>& averages() const { return averages_; }

 private:
  reference::NetReference net_;
  Way way_;
  ReferenceOptimizer optimizer_;
  std::map<std::string, reference::Values> averages_;
};

NetTexts small_net() {
  return between_data_and_cost(
      "[conv]\ntype=conv\ninputs=data\nchannels=3\nfilters=8\nfilterSize=3\npadding=1\nneuron=tanh[1,1]"
      "\ninitW=0.2\n",
      "conv", kClasses, "[conv]\nepsW=0.05\nepsB=0.05\nmomW=0.9\nmomB=0.8\nwc=0.02\n");
}

double distance_to(const std::vector<float>& values, const reference::Values& expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(static_cast<double>(values[i]) - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

std::string tensor_with(const std::string& suffix, const std::string& name) {
  std::string changed = increment_tensor(name);
  return changed.replace(changed.find("Inc"), 3, suffix);
}

}  // namespace

TEST_CASE("optimisers follow their definitions for 20 steps") {
  for (const Way& way : all_ways()) {
    INFO(way.optimizer << ", clipped at " << way.clip_norm << ", averaged by " << way.ema);
    SmallNet net(with_optimizer(small_net(), way), kImage, kClasses, with_way({}, way));
    net.prepare(Phase::train, 16);
    Reference reference(net, way);
    for (int number = 1; number <= 20; ++number) {
      const Minibatch batch = random_minibatch(kImage, 16, kClasses, static_cast<std::uint64_t>(number));
      net.step(Phase::train, batch, static_cast<std::uint64_t>(number - 1));
      reference.step(batch, number);
    }
    const std::map<std::string, NamedTensor> tensors = net.tensors();
    for (const auto& [name, m] : reference.net().matrices) {
      INFO(name);
      CHECK(distance_to(tensors.at(name).values, m.values) < kSumsTolerance);
      CHECK(tensors.contains(tensor_with("Sqr", name)) == (way.optimizer == "adamw"));
      CHECK(tensors.contains(tensor_with("Msq", name)) == (way.optimizer == "rmsprop"));
      REQUIRE(tensors.contains(tensor_with("Avg", name)) == (way.ema > 0));
      if (way.ema == 0) continue;
      CHECK(distance_to(tensors.at(tensor_with("Avg", name)).values, reference.averages().at(name)) <
            kSumsTolerance);
      CHECK(tensors.at(tensor_with("Avg", name)).values != tensors.at(name).values);
    }
  }
}

TEST_CASE("optimisers give the answer of one device on several devices and hosts") {
  const std::vector<std::int64_t> sizes = {24, 24, 13, 2, 24};
  std::vector<PlacedNet> nets = {data_parallel_nets().front(), data_parallel_nets().back(),
                                 column_per_device_nets().front()};
  PlacedNet hosts = data_parallel_nets().front();
  hosts.options.gpu = device_list(4);
  hosts.options.data_parallel = true;
  hosts.options.devices_of_hosts = {2, 2};
  nets.push_back(hosts);
  nets.push_back(replicated_trunk_nets().front());  // two passes a minibatch
  for (const PlacedNet& net : nets) {
    for (const Way& way : all_ways()) {
      INFO(net.name << ", " << way.optimizer << ", clipped at " << way.clip_norm << ", averaged by "
                    << way.ema);
      NetOptions one_device;
      one_device.extra = net.options.extra;
      SmallNet plain(with_optimizer(net.plain, way), kImage, kClasses, with_way(one_device, way));
      SmallNet placed(with_optimizer(net.placed, way), kImage, kClasses, with_way(net.options, way));
      for (const std::int64_t images : {24, 2})
        REQUIRE_NOTHROW(verify(placed.prepare(Phase::train, images), placed.graph()));
      check_same_answer(train(placed, sizes, net.options.extra), train(plain, sizes, net.options.extra));
    }
  }
}

namespace {

/// Checks that the plans of a net are right, that it learns what one device learns, and the same bits again.
void check_like_one_device_and_again(const PlacedNet& net, const std::vector<std::int64_t>& sizes,
                                     double tolerance) {
  INFO(net.name);
  INFO(net.placed.definition << net.placed.parameters);
  SmallNet placed(net.placed, kImage, kClasses, net.options);
  for (const std::int64_t images : sizes)
    REQUIRE_NOTHROW(verify(placed.prepare(Phase::train, images), placed.graph()));
  const Trained trained = train(placed, sizes);
  check_same_answer(trained, train(net.plain, net.plain_options(), sizes), tolerance);
  check_same_bits(train(net.placed, net.options, sizes), trained);
}

}  // namespace

TEST_CASE("random optimisers, update periods, nets, devices and hosts give the answer of one device") {
  for (const std::uint32_t seed : seeds(1000, 48, every_net()))
    check_like_one_device_and_again(random_training(seed), {24, 24, 13, 13, 24}, 1e-5);
}

TEST_CASE("random nets of all kinds of layers with random options give the answer of one device") {
  // Squares, normalisations and sums that all but cancel let rounding grow.
  for (const std::uint32_t seed : seeds(5000, 24, every_net()))
    check_like_one_device_and_again(random_run(seed), {24, 13, 24, 7}, 1e-4);
}

TEST_CASE(
    "random nets of all kinds of layers with random options go on from a checkpoint with the same bits") {
  for (const std::uint32_t seed : seeds(5000, 12, every_net())) {
    const PlacedNet net = random_run(seed);
    INFO(net.name);
    INFO(net.placed.definition << net.placed.parameters);
    const std::vector<std::int64_t> sizes = {24, 13, 7, 24};
    const std::size_t stop = 1 + seed % 3;
    SmallNet whole(net.placed, kImage, kClasses, net.options),
        again(net.placed, kImage, kClasses, net.options);
    again.prepare(Phase::train, sizes[0]);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (i == stop) {
        TensorFile file;
        whole.net().use_averages();
        whole.net().store(file);
        whole.net().use_trained();
        again.net().load(file, "f", whole.net().windows());
      }
      const Minibatch batch = random_minibatch(kImage, sizes[i], kClasses, i);
      whole.step(Phase::train, batch, i);
      if (i >= stop) again.step(Phase::train, batch, i);
    }
    const std::map<std::string, NamedTensor> resumed = again.tensors();
    for (const auto& [name, tensor] : whole.tensors()) {
      INFO(name);
      CHECK(resumed.at(name).values == tensor.values);
    }
  }
}

TEST_CASE("LARS decays a matrix without a gradient by its own rate") {
  const double lars = trust_factor(3, 0, 0.1, 0.001);
  CHECK(lars == Approx(0.001 * 3 / (0.1 * 3)));
  CHECK(trust_factor(3, 0, 0, 0.001) == 1);
  CHECK(trust_factor(0, 5, 0.1, 0.001) == 1);
  CHECK(trust_factor(3, 5, 0.1, 0) == 1);
}

TEST_CASE("tests see the averaged weights, and training goes on with its own") {
  const Way way{"sgd", 0, 0.9};
  SmallNet net(small_net(), kImage, kClasses, with_way({}, way));
  const Minibatch batch = random_minibatch(kImage, 16, kClasses, 1);
  for (std::uint64_t i = 0; i < 4; ++i) net.step(Phase::train, batch, i);
  const std::map<std::string, NamedTensor> tensors = net.tensors();
  SmallNet other(small_net(), kImage, kClasses);
  other.prepare(Phase::test, 16);
  for (const std::string name : {"conv.weights.data", "conv.biases"})
    other.set_weights(name, tensors.at(tensor_with("Avg", name)).values);
  for (const auto& [name, tensor] : tensors) {
    if (tensors.contains(tensor_with("Avg", name)))
      other.set_weights(name, tensors.at(tensor_with("Avg", name)).values);
  }
  const std::vector<double> trained_costs = net.step(Phase::test, batch, 4).costs;
  net.net().use_averages();
  const std::vector<double> costs = net.step(Phase::test, batch, 4).costs;
  net.net().use_trained();
  CHECK(costs == other.step(Phase::test, batch, 4).costs);
  CHECK(costs != trained_costs);
  CHECK(net.step(Phase::test, batch, 4).costs == trained_costs);
}

TEST_CASE("another kind of optimiser begins with increments of its own") {
  const NetTexts texts = small_net();
  const Minibatch batch = random_minibatch(kImage, 16, kClasses, 1);
  const auto trained = [&](const std::string& optimizer) {
    auto net = std::make_unique<SmallNet>(with_optimizer(texts, {optimizer}), kImage, kClasses);
    net->step(Phase::train, batch, 0);
    return net;
  };
  const auto sgd = trained("sgd"), adamw = trained("adamw"), rmsprop = trained("rmsprop");
  const std::vector<SmallNet*> kinds = {sgd.get(),     adamw.get(), rmsprop.get(), sgd.get(),
                                        rmsprop.get(), adamw.get(), sgd.get()};
  for (std::size_t i = 0; i + 1 < kinds.size(); ++i) {
    SmallNet *from = kinds[i], *to = kinds[i + 1];
    TensorFile file;
    from->net().store(file);
    to->net().load(file, "f", from->net().windows());
    const std::map<std::string, NamedTensor> tensors = to->tensors();
    for (const float v : tensors.at(increment_tensor("conv.weights.data")).values) CHECK(v == 0);
    CHECK(to->net().windows().empty());
    CHECK(tensors.at("conv.weights.data").values == file.tensors.at("conv.weights.data").values);
  }
}

TEST_CASE("gradients cannot be clipped where layers are updated at different times") {
  NetTexts texts = small_net();
  texts.parameters.insert(texts.parameters.find("[conv]") + 7, "updatePeriod=3\n");
  NetOptions options;
  options.clip_norm = 1;
  std::string message;
  try {
    SmallNet net(texts, kImage, kClasses, options);
  } catch (const InputError& e) {
    message = e.what();
  }
  CHECK_THAT(message, Catch::Contains("--clip-norm needs the gradient of all weights at once") &&
                          Catch::Contains("updatePeriod=3") && Catch::Contains("net.cfg:"));
}
