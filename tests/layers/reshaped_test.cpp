// Flat vectors read as maps: convolutions and other layers of maps above fc, softmax, sum, dropout and the
// like. Libraries want blocked layouts of the maps, while the vectors lie plain, so plans reorder. The
// results are those of the reference interpreter.
#include <random>

#include "convnet/plan/verify.h"
#include "tests/larger.h"
#include "tests/layers/against_reference.h"

using namespace convnet;
using namespace convnet::test;

namespace {

constexpr int kReshapedClasses = 4;
const Dims kReshapedImage = {3, 6, 6};

struct ReshapedNet {
  std::string layers, top, parameters;
};

/// Makes random choices, the same for the same seed.
class Lot {
 public:
  explicit Lot(std::uint32_t seed) : random_(seed) {}
  int below(int count) { return static_cast<int>(random_() % static_cast<std::uint32_t>(count)); }
  template <class T>
  T one_of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(below(static_cast<int>(choices.size())))];
  }

 private:
  std::mt19937 random_;
};

std::string number(int value) { return std::to_string(value); }

/// Makes a layer "flat" of `size` numbers, an even number, above layers that learn.
std::string flat_layer(int kind, int size) {
  const auto wide = [](const std::string& name, int outputs, const std::string& keys = "") {
    return fc(name, "inputs=data outputs=" + number(outputs) + " neuron=tanh[1,1] " + keys);
  };
  switch (kind) {
    case 0: return fc("flat", "inputs=data outputs=" + number(size));
    case 1: return wide("flat", size);
    case 2:
      return wide("low", 8) +
             section("flat", "sfc", "inputs=low parts=2 initW=0.3 outputs=" + number(size / 2));
    case 3: return wide("low", size) + section("flat", "softmax", "inputs=low");
    case 4: return wide("low", 2 * size) + section("flat", "sum", "inputs=low stride=2");
    case 5: return wide("low", size) + section("flat", "dropout", "inputs=low");
    case 6: return fc("flat", "inputs=data neuron=relu dropout=0.3 outputs=" + number(size));
    case 7: return wide("a", size / 2) + wide("b", size / 2) + section("flat", "concat", "inputs=a,b");
    case 8: return wide("low", size) + section("flat", "pass", "inputs=low");
    case 9: return wide("a", size) + wide("b", size) + section("flat", "eltsum", "inputs=a,b coeffs=0.5,-1");
    case 10: return wide("low", size) + section("flat", "bnorm", "inputs=low epsilon=0.1");
    default: return wide("a", size) + wide("b", size) + section("flat", "eltmax", "inputs=a,b");
  }
}
constexpr int kFlatKinds = 12;

/// Makes a layer `name` that reads "flat" as `channels` maps of `side` x `side` pixels.
std::string map_layer(const std::string& name, int kind, int channels, int side) {
  const std::string c = "inputs=flat channels=" + number(channels) + " ", n = name + "_maps";
  const std::string filter = side > 2 ? "filterSize=3 padding=1 " : "filterSize=1 ";
  const std::string window = side > 1 ? "sizeX=2 stride=1" : "sizeX=1 stride=1";
  const auto images = [&](int filters) {
    return conv(n, "inputs=data channels=3 filterSize=" + number(7 - side) + " filters=" + number(filters));
  };
  switch (kind) {
    case 0: return conv(name, c + filter + "filters=16 neuron=relu");
    case 1: return conv(name, c + filter + "filters=5 neuron=tanh[1,1]");
    case 2: return section(name, "local", c + filter + "filters=8 initW=0.3");
    case 3: return section(name, "pool", c + "pool=max " + window);
    case 4: return section(name, "pool", c + "pool=avg " + window + " neuron=tanh[1,1]");
    case 5: return section(name, "pool", c + "pool=maxabs " + window);
    case 6: return section(name, "cmrnorm", c + "size=3");
    case 7: return section(name, "rnorm", c + "size=2");
    case 8: return section(name, "cnorm", c + "size=2");
    case 9: return section(name, "bnorm", c + "epsilon=0.1");
    case 10: return section(name, "blur", c + "filterSize=3 stdev=1");
    case 11: return section(name, "href", c);
    case 12: return section(name, "cmpool", c + "pool=max size=2 stride=2");
    case 13: return images(channels) + section(name, "eltsum", "inputs=" + n + ",flat coeffs=1,0.5");
    case 14: return images(channels) + section(name, "eltsum", "inputs=flat," + n + " coeffs=1,1");
    case 15: return images(channels) + section(name, "eltmax", "inputs=" + n + ",flat");
    case 16: return images(channels) + section(name, "eltmax", "inputs=flat," + n);
    case 17: return images(channels) + section(name, "eltmul", "inputs=" + n + ",flat");
    case 18: return section(name, "slice", c + "start=1");
    case 19: return section(name, "shuffle", c + "groups=" + number(channels));
    case 20: return section(n, "nailbed", c + "stride=2") + section(name, "pass", "inputs=" + n);
    default:
      return images(8) + conv(name, "inputs=flat," + n + " channels=" + number(channels) +
                                        ",8 filters=8 filterSize=1 neuron=relu");
  }
}
constexpr int kMapKinds = 22;

/// Every kind of flat layer and of maps above it comes in turn; sizes, further users and their order are
/// random.
ReshapedNet reshaped_net(std::uint32_t seed) {
  Lot lot(seed);
  struct Maps {
    int channels, side;
  };
  // These are blocks of 8 and of 16 channels, and channels that do not fill them.
  const auto [channels, side] = lot.one_of<Maps>({{16, 2},
                                                  {16, 4},
                                                  {8, 3},
                                                  {32, 2},
                                                  {24, 2},
                                                  {4, 4},
                                                  {3, 4},
                                                  {20, 3},
                                                  {16, 1},
                                                  {2, 5},
                                                  {6, 4},
                                                  {48, 1}});
  ReshapedNet net;
  net.layers = flat_layer(static_cast<int>(seed) % kFlatKinds, channels * side * side);
  const auto add = [&](int kind, int c, int s) {
    const std::string name = "maps" + number(kind) + "x" + number(c);
    if (net.layers.find("[" + name + "]") != std::string::npos) return;
    net.layers += map_layer(name, kind, c, s);
    net.top += (net.top.empty() ? "" : ",") + name;
    if (kind >= 6 && kind <= 8) net.parameters += keys_of(name, "scale=0.5 pow=0.75");
  };
  add(static_cast<int>(seed) % kMapKinds, channels, side);
  for (int more = lot.below(3); more > 0; --more) {
    const int kind = lot.below(kMapKinds);
    // Some users read maps of another size.
    if (side % 2 == 0 && lot.below(2) == 0) {
      add(kind, channels * 4, side / 2);
    } else {
      add(kind, channels, side);
    }
  }
  // A user of the vector itself comes before or after the users of maps.
  if (lot.below(2) == 0) net.top = lot.below(2) == 0 ? "flat," + net.top : net.top + ",flat";
  return net;
}

NetTexts texts_of(const ReshapedNet& net) {
  return between_data_and_cost(net.layers, net.top, kReshapedClasses, net.parameters);
}

/// Returns the largest difference relative to the largest magnitude of `expected`, or to what a bnorm makes
/// of its own rounding if all should be zero.
double elementwise(const std::vector<float>& actual, const reference::Values& expected) {
  double largest = 1e-4, difference = 0;
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = larger(difference, std::abs(static_cast<double>(actual[i]) - expected[i]));
  }
  return difference / largest;
}

/// Returns ||actual - expected|| / ||expected||, with the same lower bound.
double by_norm(const std::vector<float>& actual, const reference::Values& expected) {
  double norm = 1e-8, difference = 0;
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    norm += expected[i] * expected[i];
    difference += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
  }
  return std::sqrt(difference / norm);
}

/// Runs the phases, then compares costs, weights and increments with those of the interpreter.
void check_like_reference(const NetTexts& texts, const NetOptions& options) {
  INFO(texts.definition);
  constexpr std::int64_t kImages = 4;
  SmallNet net(texts, kReshapedImage, kReshapedClasses, options);
  for (const Phase phase : {Phase::train, Phase::check, Phase::test})
    REQUIRE_NOTHROW(verify(net.prepare(phase, kImages), net.graph()));
  const bool rounded = options.precision == Precision::bf16;
  const double tolerance = rounded ? 0.1 : kTolerance;
  std::vector<Phase> phases = {Phase::test, Phase::train};
  if (!rounded) phases.insert(phases.end(), {Phase::train, Phase::test});
  reference::NetReference reference = net.reference();
  std::uint64_t iteration = 0;
  for (const Phase phase : phases) {
    INFO("step " << iteration);
    const Minibatch batch = random_minibatch(kReshapedImage, kImages, kReshapedClasses, 50 + iteration);
    const StepOutcome outcome = net.step(phase, batch, iteration);
    reference.forward(reference_inputs(batch), phase == Phase::train, iteration);
    if (phase == Phase::train) {
      reference.backward();
      reference.update();
    }
    CHECK(std::abs(outcome.costs[0] / reference.costs()[0] - 1) < tolerance);
    ++iteration;
  }
  const auto tensors = net.tensors();
  const auto difference = rounded ? by_norm : elementwise;
  for (const auto& [name, matrix] : reference.matrices) {
    INFO(name);
    CHECK(difference(tensors.at(name).values, matrix.values) < tolerance);
    if (matrix.learned())
      CHECK(difference(tensors.at(increment_tensor(name)).values, matrix.increment) < tolerance);
  }
}

}  // namespace

TEST_CASE("vectors read as maps train like the reference") {
  for (std::uint32_t seed = 0; seed < 2 * kMapKinds; ++seed)
    check_like_reference(texts_of(reshaped_net(seed)), {});
}

TEST_CASE("vectors read as maps train like the reference on several devices") {
  NetOptions two;
  two.gpu = "0,1";
  two.data_parallel = true;
  NetOptions saving = two;
  saving.conserve_memory = true;
  saving.rewrites = false;
  for (std::uint32_t seed = 1000; seed < 1019; ++seed)
    check_like_reference(texts_of(reshaped_net(seed)), seed % 3 == 0 ? two : saving);
}

TEST_CASE("vectors on one device are read as maps on another") {
  NetOptions three;
  three.gpu = "0,1,2";
  for (std::uint32_t seed = 2000; seed < 2019; ++seed) {
    const ReshapedNet net = reshaped_net(seed);
    NetTexts texts = texts_of(net);
    // The readers take turns with the devices; what they read is on the first.
    int device = 0;
    for (std::size_t at = texts.definition.find("[maps"); at != std::string::npos;
         at = texts.definition.find("[maps", at + 1))
      texts.definition.insert(texts.definition.find('\n', at) + 1, "gpu=" + number(++device % 3) + "\n");
    check_like_reference(texts, three);
  }
}

TEST_CASE("vectors read as maps train nearly like the reference in bf16") {
  NetOptions bf16;
  bf16.precision = Precision::bf16;
  int compared = 0;
  for (std::uint32_t seed = 3000; seed < 3040; ++seed) {
    const NetTexts texts = texts_of(reshaped_net(seed));
    // Rounding changes which of several numbers is the largest, and so the gradients.
    const bool kinks = texts.definition.find("max") < texts.definition.find("[top]") ||
                       texts.definition.find("relu") != std::string::npos;
    if (kinks) continue;
    check_like_reference(texts, bf16);
    ++compared;
  }
  CHECK(compared >= 5);
}

namespace {

/// Whether convolutions read blocked activations everywhere; oneDNN's for ARM without SVE read plain ones.
#if defined(__x86_64__)
constexpr bool kReadsBlocks = true;
#else
constexpr bool kReadsBlocks = false;
#endif

}  // namespace

TEST_CASE("a vector that a layer wants as blocked maps is reordered once for all who read it so") {
  const std::string layers = fc("flat", "inputs=data outputs=256 neuron=tanh[1,1]") +
                             conv("a", "inputs=flat channels=16 filters=16 filterSize=3 padding=1") +
                             conv("b", "inputs=flat channels=16 filters=16 filterSize=3 padding=1") +
                             conv("c", "inputs=flat channels=64 filters=16 filterSize=1");
  SmallNet net(between_data_and_cost(layers, "a,b,c,flat", kReshapedClasses), kReshapedImage,
               kReshapedClasses);
  const Plan& plan = net.prepare(Phase::train, 4);
  std::map<std::string, int> read_as;
  for (const Task& task : plan.tasks) {
    if (!std::holds_alternative<Reorder>(*task.op)) continue;
    const Buffer& to = plan.buffers[task.uses[1].buffer];
    if (to.name.starts_with("flat")) ++read_as[to_string(to.desc.dims)];
  }
  for (const auto& [dims, times] : read_as) {
    INFO(dims);
    CHECK(times == 1);
  }
  if (kReadsBlocks && net.net().plans().target().name() == "cpu") CHECK(!read_as.empty());
}

TEST_CASE("a blocked buffer that is read as maps of another shape is found") {
  const std::string layers = fc("flat", "inputs=data outputs=256 neuron=tanh[1,1]") +
                             conv("a", "inputs=flat channels=16 filters=16 filterSize=3 padding=1");
  SmallNet net(between_data_and_cost(layers, "a", kReshapedClasses), kReshapedImage, kReshapedClasses);
  Plan plan = net.prepare(Phase::train, 4);
  REQUIRE_NOTHROW(verify(plan, net.graph()));
  int blocked = 0;
  for (Buffer& b : plan.buffers) {
    if (b.persistent() || b.desc.plain() || b.desc.dims != Dims{4, 16, 4, 4}) continue;
    ++blocked;
    const Dims dims = std::exchange(b.desc.dims, Dims{4, 64, 2, 2});
    CHECK_THROWS_AS(verify(plan, net.graph()), std::logic_error);
    b.desc.dims = dims;
  }
  if (kReadsBlocks) CHECK(blocked > 0);
}
