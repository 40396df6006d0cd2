// Random nets train as the double-precision interpreter says.
#include "tests/layers/random_nets.h"

#include <optional>

#include "tests/every_case.h"
#include "tests/layers/against_reference.h"

using namespace convnet;
using namespace convnet::test;

namespace {

constexpr std::int64_t kImagesOfRandomNets = 6;

/// The largest relative difference of an output, a cost, a weight or an increment, and where it is.
struct LargestDifference {
  double size = 0;
  std::string place;
  void add(double other, const std::string& where) {
    if (!(other <= size)) *this = {other, where};
  }
};

double largest_of(const reference::Values& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// Returns relative_difference(), but for numbers that all are below a hundredth of `usual` that part of it:
/// sums that all but cancel are rounding.
template <class A>
double difference(const A& actual, const reference::Values& expected, double usual) {
  const double own = std::max(largest_of(expected), 1e-30);  // as relative_difference() has it
  return relative_difference(actual, expected) * own / std::max(own, 0.01 * usual);
}

/// Trains three minibatches, with a test before and after, beside the interpreter. Returns nullopt if
/// training goes astray before one was compared.
std::optional<LargestDifference> difference_from_reference(const NetTexts& texts, const NetOptions& options) {
  SmallNet net(texts, kRandomNetImage, kRandomNetClasses, options);
  net.prepare(Phase::train, kImagesOfRandomNets);
  reference::NetReference reference = net.reference();
  LargestDifference largest;
  std::uint64_t iteration = 0;
  for (const Phase phase : {Phase::test, Phase::train, Phase::train, Phase::train, Phase::test}) {
    const std::string step = " of step " + std::to_string(iteration);
    const Minibatch batch = random_minibatch(kRandomNetImage, kImagesOfRandomNets, kRandomNetClasses,
                                             100 * options.seed + iteration, options.extra);
    const StepOutcome outcome = net.step(phase, batch, iteration);
    reference.forward(reference_inputs(batch), phase == Phase::train, iteration);
    // Training that goes astray lets rounding grow.
    if (!(reference.objective() < 8 * kImagesOfRandomNets)) {
      constexpr std::uint64_t kFirstTraining = 1;
      if (iteration <= kFirstTraining) return std::nullopt;
      break;
    }
    if (phase == Phase::train) {
      reference.backward();
      reference.update();
    }
    largest.add(difference(outcome.costs, reference.costs(), 1), "costs" + step);
    if (phase == Phase::test) {
      for (const auto& [layer, values] : net.read_outputs(batch))
        largest.add(difference(values, reference.output(layer), 1), "output of " + layer + step);
    }
    double usual = 0;  // increments
    for (const auto& [name, matrix] : reference.matrices)
      usual = std::max(usual, largest_of(matrix.increment));
    const auto tensors = net.tensors();
    for (const auto& [name, matrix] : reference.matrices) {
      largest.add(difference(tensors.at(name).values, matrix.values, 1), name + step);
      if (matrix.learned())
        largest.add(difference(tensors.at(increment_tensor(name)).values, matrix.increment, usual),
                    increment_tensor(name) + step);
    }
    ++iteration;
  }
  return largest;
}

/// A number within rounding of a kink may lie on the other side of it in fp32, but hardly with all images.
/// Returns whether training was compared.
bool check_random_net(const NetTexts& texts, std::uint32_t seed) {
  INFO("seed " << seed << "\n" << texts.definition);
  double least = INFINITY;
  std::string places;
  for (std::uint64_t images = 1; images <= 4 && !(least < kTolerance); ++images) {
    NetOptions options;
    options.seed = 4 * seed + images;
    options.extra = random_net_matrices();
    options.conserve_memory = seed % 4 == 3;
    const std::optional<LargestDifference> found = difference_from_reference(texts, options);
    if (!found) continue;
    least = std::min(least, found->size);
    places += found->place + ": " + std::to_string(found->size) + "\n";
  }
  INFO(places);
  CHECK((places.empty() || least < kTolerance));
  return !places.empty();
}

/// Checks nets, of which most must train soundly enough to be compared.
template <class Texts>
void check_random_nets(const Texts& texts_of) {
  int nets = 0, compared = 0;
  for (const std::uint32_t seed : seeds(1, 30, static_cast<std::uint32_t>(every_case()))) {
    ++nets;
    compared += check_random_net(texts_of(seed), seed) ? 1 : 0;
  }
  CHECK(4 * compared >= 3 * nets);
}

}  // namespace

TEST_CASE("random nets of all kinds of layers train as the interpreter says") {
  check_random_nets([](std::uint32_t seed) { return RandomNets(seed).next(); });
}

TEST_CASE("random nets of layers that are joined train as the interpreter says") {
  check_random_nets([](std::uint32_t seed) { return RandomNets(seed, LayerKinds::joined).next(); });
}
