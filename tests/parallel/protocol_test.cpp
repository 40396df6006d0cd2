// When weights are updated, and with which images, against the protocol spelled out in double precision:
// passes of the layers with the fewest replicas, updatePeriod within and beyond a minibatch, short
// minibatches.
#include "tests/parallel/placed_nets.h"
#include "tests/parallel/reference_optimizer.h"

using namespace convnet;
using namespace convnet::test;

namespace {

// Sums of fp32 against double; a wrong protocol is off by far more (see the last test).
constexpr double kClose = 1e-4;

/// Runs the passes of minibatches one after the other: of each, all layers forward and backward on its images
/// alone. No weight changes before its update period ends, so it does not matter that layers with more
/// replicas do several passes at once.
class PassByPass {
 public:
  /// `replicas`: the most and the fewest of a layer. `periods`: by layer, effective, in passes.
  PassByPass(reference::NetReference net, int most, int fewest, std::map<std::string, int> periods,
             const std::string& optimizer = "sgd")
      : net_(std::move(net)),
        most_(most),
        fewest_(fewest),
        periods_(std::move(periods)),
        optimizer_(optimizer) {}

  void minibatch(const Minibatch& batch, std::uint64_t iteration) {
    const std::int64_t share = (batch.images() + most_ - 1) / most_;
    costs_.clear();
    for (int pass = 0; pass < most_ / fewest_; ++pass) {
      const std::int64_t begin = std::min(batch.images(), pass * fewest_ * share);
      const std::int64_t end = std::min(batch.images(), (pass + 1) * fewest_ * share);
      if (end > begin) {
        net_.forward(reference_inputs(part(batch, begin, end)), true, iteration);
        net_.backward();
        costs_.resize(net_.costs().size());
        for (std::size_t i = 0; i < costs_.size(); ++i) costs_[i] += net_.costs()[i];
      }
      for (auto& [name, matrix] : net_.matrices) {
        if (matrix.learned()) add_pass(name, matrix, end - begin);
      }
    }
  }

  const reference::Values& costs() const { return costs_; }
  const std::map<std::string, reference::Matrix>& matrices() const { return net_.matrices; }
  /// Returns the gradients, summed over images, of windows that are still open, by matrix.
  std::map<std::string, reference::Values> open_windows() const {
    std::map<std::string, reference::Values> open;
    for (const auto& [name, window] : windows_) {
      if (window.passes > 0) open[name] = window.gradient;
    }
    return open;
  }
  int updates(const std::string& matrix) const { return windows_.at(matrix).updates; }

 private:
  struct Window {
    reference::Values gradient;
    std::int64_t images = 0;
    int passes = 0, updates = 0;
  };

  static Minibatch part(const Minibatch& batch, std::int64_t begin, std::int64_t end) {
    const std::int64_t size = element_count(kImage);
    Minibatch images;
    images.data.assign(batch.data.begin() + begin * size, batch.data.begin() + end * size);
    images.labels.assign(batch.labels.begin() + begin, batch.labels.begin() + end);
    return images;
  }

  void add_pass(const std::string& name, reference::Matrix& matrix, std::int64_t images) {
    Window& window = windows_[name];
    window.gradient.resize(matrix.values.size());
    if (images > 0) {
      for (std::size_t i = 0; i < matrix.values.size(); ++i) window.gradient[i] += matrix.gradient[i];
      window.images += images;
    }
    if (++window.passes < periods_.at(name.substr(0, name.find('.')))) return;
    if (window.images > 0) {
      matrix.gradient = window.gradient;
      for (double& g : matrix.gradient) g /= static_cast<double>(window.images);
      optimizer_.update(name, matrix, ++window.updates);
    }
    window = {{}, 0, 0, window.updates};
  }

  reference::NetReference net_;
  int most_, fewest_;
  std::map<std::string, int> periods_;
  ReferenceOptimizer optimizer_;
  std::map<std::string, Window> windows_;
  reference::Values costs_;
};

/// Returns a net without dropout, whose masks the interpreter knows for whole minibatches only.
NetTexts chain() {
  return between_data_and_cost(
      conv("conv1", "inputs=data channels=3 filters=4 filterSize=5 stride=2 neuron=tanh[1,1]") +
          section("pool1", "pool", "pool=avg inputs=conv1 channels=4 sizeX=2 stride=2") +
          fc("fc1", "inputs=pool1 outputs=9 neuron=tanh[1,1]"),
      "fc1", kClasses);
}

struct Protocol {
  std::string name;
  std::map<std::string, std::string> keys;  ///< gpu= and other keys, by layer
  int devices = 1, most = 1, fewest = 1;
  std::map<std::string, int> update_period;  ///< updatePeriod of layers, as it is written
  std::map<std::string, int> effective;      ///< the period that results for conv1, fc1, top
  std::string optimizer = "sgd";
};

NetTexts texts_of(const Protocol& p) {
  NetTexts texts = chain();
  texts.definition = with_keys(texts.definition, p.keys);
  std::map<std::string, std::string> lines;
  for (const auto& [layer, period] : p.update_period) lines[layer] = "updatePeriod=" + std::to_string(period);
  texts.parameters = with_keys(texts.parameters, lines);
  return with_optimizer(texts, {p.optimizer});
}

NetOptions options_of(const Protocol& p) {
  NetOptions options;
  options.gpu = device_list(p.devices);
  return options;
}

Minibatch batch_of(std::int64_t images, std::uint64_t iteration) {
  return random_minibatch(kImage, images, kClasses, 300 + iteration);
}

std::string gradient_tensor(std::string name) {
  const std::size_t weights = name.find(".weights.");
  return weights == std::string::npos ? name + "Grad" : name.insert(weights + 8, "Grad");
}

void check_state(SmallNet& net, const PassByPass& expected) {
  const auto tensors = net.tensors();
  for (const auto& [name, matrix] : expected.matrices()) {
    INFO(name);
    CHECK(relative_difference(tensors.at(name).values, matrix.values) < kClose);
    CHECK(relative_difference(tensors.at(increment_tensor(name)).values, matrix.increment) < kClose);
  }
  const auto open = expected.open_windows();
  for (const auto& [name, matrix] : expected.matrices()) {
    INFO(gradient_tensor(name));
    CHECK(tensors.contains(gradient_tensor(name)) == open.contains(name));
    if (!tensors.contains(gradient_tensor(name)) || !open.contains(name)) continue;
    CHECK(tensors.at(gradient_tensor(name)).dims == tensors.at(name).dims);
    CHECK(relative_difference(tensors.at(gradient_tensor(name)).values, open.at(name)) < kClose);
  }
}

void follow(const Protocol& p, const std::vector<std::int64_t>& sizes) {
  INFO(p.name);
  SmallNet net(texts_of(p), kImage, kClasses, options_of(p));
  net.prepare(Phase::train, sizes[0]);
  PassByPass expected(net.reference(), p.most, p.fewest, p.effective, p.optimizer);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    INFO("minibatch " << i << " of " << sizes[i] << " images");
    const Minibatch batch = batch_of(sizes[i], i);
    const StepOutcome outcome = net.step(Phase::train, batch, i);
    expected.minibatch(batch, i);
    CHECK(relative_difference(outcome.costs, expected.costs()) < kClose);
    check_state(net, expected);
  }
}

/// Two replicas of the trunk, one of the rest.
Protocol two_passes(const std::string& name, int head_period, int effective) {
  return {name,
          {{"conv1", "gpu=0,1"}, {"fc1", "gpu=0"}},
          2,
          2,
          1,
          {{"fc1", head_period}, {"top", head_period}},
          {{"conv1", 2}, {"fc1", effective}, {"top", effective}}};
}

Protocol four_passes(const std::string& name, int head_period, int effective) {
  return {name,
          {{"conv1", "gpu=0,1,2,3"}, {"fc1", "gpu=1"}, {"top", "gpu=0"}},
          4,
          4,
          1,
          {{"fc1", head_period}, {"top", head_period}},
          {{"conv1", 4}, {"fc1", effective}, {"top", effective}}};
}

}  // namespace

TEST_CASE("a single-device head is updated in every pass") {
  follow(two_passes("updatePeriod=1", 1, 1), {8, 8, 7, 3, 8});
  follow(two_passes("by default", 0, 1), {8, 8, 7, 3, 8});
  follow(four_passes("four passes", 1, 1), {8, 8, 7, 5, 8});
}

TEST_CASE("every update of a minibatch is a step of its own for every optimiser") {
  for (const std::string optimizer : {"nesterov", "adamw", "rmsprop", "lars"}) {
    for (const int period : {1, 2, 8}) {
      Protocol p = four_passes(optimizer + ", updatePeriod=" + std::to_string(period), period, period);
      p.optimizer = optimizer;
      follow(p, {8, 8, 7, 5, 8});
    }
  }
}

TEST_CASE("a head is updated every few passes") {
  follow(four_passes("every second of four", 2, 2), {8, 8, 7, 5, 8});
  follow(four_passes("once in four", 4, 4), {8, 8, 7, 5, 8});
}

TEST_CASE("passes of several replicas") {
  follow({"two replicas above four",
          {{"conv1", "gpu=0,1,2,3"}, {"fc1", "gpu=1,3"}},
          4,
          4,
          2,
          {},
          {{"conv1", 2}, {"fc1", 1}, {"top", 1}}},
         {8, 8, 7, 5, 2});
  follow({"two replicas above six",
          {{"conv1", "gpu=0,1,2,3,4,5"}, {"fc1", "gpu=1,3"}},
          6,
          6,
          2,
          {{"fc1", 1}, {"top", 3}},
          {{"conv1", 3}, {"fc1", 1}, {"top", 3}}},
         {12, 12, 7, 5, 2});
}

TEST_CASE("every replica count has its own period") {
  const std::map<std::string, std::string> gpus = {
      {"conv1", "gpu=0,1,2,3"}, {"fc1", "gpu=2,1"}, {"top", "gpu=3"}};
  follow({"4, 2 and 1, as often as possible", gpus, 4, 4, 1, {}, {{"conv1", 4}, {"fc1", 2}, {"top", 1}}},
         {8, 8, 7, 5, 2});
  follow({"4, 2 and 1, no more often than possible",
          gpus,
          4,
          4,
          1,
          {{"conv1", 1}, {"fc1", 1}, {"top", 1}},
          {{"conv1", 4}, {"fc1", 2}, {"top", 1}}},
         {8, 8, 7, 5, 2});
  follow({"4, 2 and 1, other periods",
          gpus,
          4,
          4,
          1,
          {{"conv1", 2}, {"fc1", 4}, {"top", 2}},
          {{"conv1", 4}, {"fc1", 4}, {"top", 2}}},
         {8, 8, 7, 5, 2});
}

TEST_CASE("what lies below more replicas waits for them with its update") {
  follow({"1, 2 and 1",
          {{"conv1", "gpu=1"}, {"fc1", "gpu=0,1"}, {"top", "gpu=0"}},
          2,
          2,
          1,
          {},
          {{"conv1", 2}, {"fc1", 2}, {"top", 1}}},
         {8, 8, 7, 3, 1});
  follow({"2, 4 and 2",
          {{"conv1", "gpu=1,0"}, {"fc1", "gpu=0,1,2,3"}, {"top", "gpu=0,3"}},
          4,
          4,
          2,
          {{"conv1", 1}, {"fc1", 1}, {"top", 1}},
          {{"conv1", 2}, {"fc1", 2}, {"top", 1}}},
         {8, 8, 7, 3, 1});
  follow({"1, 2 and 4",
          {{"conv1", "gpu=2"}, {"fc1", "gpu=0,1"}, {"top", "gpu=0,1,2,3"}},
          4,
          4,
          1,
          {},
          {{"conv1", 4}, {"fc1", 4}, {"top", 4}}},
         {8, 8, 7, 3, 1});
}

TEST_CASE("a model-parallel head is updated in every pass") {
  follow({"above two replicas",
          {{"conv1", "gpu=0,1"}, {"fc1", "parallel=model\ngpu=0,1"}, {"top", "parallel=model\ngpu=1,0"}},
          2,
          2,
          1,
          {},
          {{"conv1", 2}, {"fc1", 1}, {"top", 1}}},
         {8, 8, 7, 3, 1});
}

TEST_CASE("a window without images makes no update") {
  for (const int period : {1, 2, 4}) {
    // One image: passes 1 to 3 have none. Two: 2 and 3. Five in shares of two: 3 has none.
    follow(four_passes("period " + std::to_string(period), period, period), {8, 1, 8, 2, 5, 1});
  }
  const Protocol p = four_passes("", 1, 1);
  SmallNet net(texts_of(p), kImage, kClasses, options_of(p));
  net.prepare(Phase::train, 1);
  PassByPass expected(net.reference(), p.most, p.fewest, p.effective, p.optimizer);
  expected.minibatch(batch_of(1, 0), 0);
  CHECK(expected.updates("top.biases") == 1);
  expected.minibatch(batch_of(8, 1), 1);
  CHECK(expected.updates("top.biases") == 5);
  CHECK(expected.updates("conv1.biases") == 2);
}

TEST_CASE("gradients accumulate over minibatches") {
  follow({"two minibatches on one device",
          {},
          1,
          1,
          1,
          {{"conv1", 2}, {"fc1", 2}, {"top", 2}},
          {{"conv1", 2}, {"fc1", 2}, {"top", 2}}},
         {8, 3, 1, 8, 8});
  follow({"three of one layer's on one device",
          {},
          1,
          1,
          1,
          {{"fc1", 3}},
          {{"conv1", 1}, {"fc1", 3}, {"top", 1}}},
         {8, 3, 1, 8, 8, 2, 8});
  follow({"two minibatches of replicas",
          {{"conv1", "gpu=0,1,2"}},
          3,
          3,
          3,
          {{"conv1", 2}, {"fc1", 2}, {"top", 3}},
          {{"conv1", 2}, {"fc1", 2}, {"top", 3}}},
         {8, 3, 1, 8, 2, 8, 8});
  follow(two_passes("two minibatches of a single-device head", 4, 4), {8, 3, 1, 8, 7});
  follow({"two minibatches of the trunk",
          {{"conv1", "gpu=0,1"}, {"fc1", "gpu=1"}},
          2,
          2,
          1,
          {{"conv1", 4}, {"fc1", 1}, {"top", 6}},
          {{"conv1", 4}, {"fc1", 1}, {"top", 6}}},
         {8, 3, 1, 8, 7, 8});
  follow({"two minibatches of a model-parallel head",
          {{"conv1", "gpu=0,1"}, {"fc1", "parallel=model\ngpu=0,1"}},
          2,
          2,
          1,
          {{"fc1", 4}},
          {{"conv1", 2}, {"fc1", 4}, {"top", 1}}},
         {8, 3, 1, 8, 7});
}

TEST_CASE("weights stand still while their window is open, also in tests") {
  for (const Protocol& p : {two_passes("", 4, 4), Protocol{"",
                                                           {{"conv1", "gpu=0,1,2"}},
                                                           3,
                                                           3,
                                                           3,
                                                           {{"fc1", 2}, {"top", 2}},
                                                           {{"conv1", 1}, {"fc1", 2}, {"top", 2}}}}) {
    SmallNet net(texts_of(p), kImage, kClasses, options_of(p));
    net.prepare(Phase::train, 8);
    PassByPass expected(net.reference(), p.most, p.fewest, p.effective, p.optimizer);
    std::map<std::string, NamedTensor> before = net.tensors();
    for (std::uint64_t i = 0; i < 4; ++i) {
      const std::int64_t images = i % 2 == 0 ? 8 : 5;
      net.step(Phase::train, batch_of(images, i), i);
      net.step(Phase::test, batch_of(6, i), i);
      expected.minibatch(batch_of(images, i), i);
      const auto after = net.tensors();
      for (const std::string layer : {"fc1", "top"}) {
        for (const std::string& name : {layer + ".biases", layer + ".biasesInc"}) {
          INFO(name << " after minibatch " << i);
          CHECK((after.at(name).values == before.at(name).values) == (i % 2 == 0));
        }
      }
      CHECK(after.at("conv1.biases").values != before.at("conv1.biases").values);
      before = after;
    }
    check_state(net, expected);
  }
}

TEST_CASE("an open window goes on from a checkpoint") {
  for (const Protocol& p :
       {two_passes("a head", 4, 4),
        Protocol{"one device", {}, 1, 1, 1, {{"conv1", 3}, {"fc1", 3}, {"top", 2}}, {}},
        Protocol{"replicas", {{"conv1", "gpu=0,1,2"}}, 3, 3, 3, {{"conv1", 2}, {"fc1", 3}}, {}}}) {
    INFO(p.name);
    const std::vector<std::int64_t> sizes = {8, 3, 7, 8, 5};
    for (std::size_t stop = 1; stop < sizes.size(); ++stop) {
      INFO("stopped after minibatch " << stop);
      SmallNet whole(texts_of(p), kImage, kClasses, options_of(p));
      SmallNet again(texts_of(p), kImage, kClasses, options_of(p));
      again.prepare(Phase::train, 8);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (i == stop) {
          TensorFile file;
          whole.net().store(file);
          again.net().load(file, "f", whole.net().windows());
        }
        whole.step(Phase::train, batch_of(sizes[i], i), i);
        if (i >= stop) again.step(Phase::train, batch_of(sizes[i], i), i);
      }
      const auto expected = whole.tensors();
      const auto actual = again.tensors();
      CHECK(actual.size() == expected.size());
      for (const auto& [name, tensor] : expected) {
        INFO(name);
        REQUIRE(actual.contains(name));
        CHECK(actual.at(name).values == tensor.values);
      }
    }
  }
}

TEST_CASE("another protocol would be noticed") {
  const Protocol p = two_passes("", 1, 1);
  SmallNet net(texts_of(p), kImage, kClasses, options_of(p));
  net.prepare(Phase::train, 7);
  PassByPass right(net.reference(), 2, 1, p.effective);
  PassByPass once(net.reference(), 2, 1, {{"conv1", 2}, {"fc1", 2}, {"top", 2}});
  PassByPass trunk_too(net.reference(), 2, 1, {{"conv1", 1}, {"fc1", 1}, {"top", 1}});
  for (std::uint64_t i = 0; i < 2; ++i) {
    for (PassByPass* protocol : {&right, &once, &trunk_too}) protocol->minibatch(batch_of(7, i), i);
  }
  for (const auto& [name, matrix] : right.matrices()) {
    INFO(name);
    for (const PassByPass* wrong : {&once, &trunk_too})
      CHECK(relative_difference(wrong->matrices().at(name).increment, matrix.increment) > 30 * kClose);
  }
}
