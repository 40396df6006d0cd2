// Nets of all layer types in bf16 beside the same nets in fp32, by the gradients of their weights: costs are
// sums in which a wrong half of a tensor hardly shows.
#include <map>
#include <random>
#include <set>

#include "convnet/plan/verify.h"
#include "tests/catch.h"
#include "tests/layers/random_nets.h"
#include "tests/wrapped_backend.h"

using namespace convnet;
using namespace convnet::test;

namespace {

constexpr std::int64_t kImagesInBf16 = 8;

using Gradients = std::map<std::string, std::vector<float>>;  ///< by the name of the weights

/// Returns whether the results are probabilities, which stay f32 in bf16 nets.
bool makes_probabilities(const OpDesc& op) {
  const auto* neuron = std::get_if<NeuronForward>(&op);
  return std::holds_alternative<SoftmaxForward>(op) || (neuron != nullptr && gives_probabilities(neuron->f));
}

/// An operation whose results, if they are activations or gradients of f32, are off by noise of the size of a
/// rounding to bf16. `round` 0 is without noise; others have noise of their own.
class NoisyOp : public PreparedOp {
 public:
  NoisyOp(const OpDesc& op, std::shared_ptr<const PreparedOp> inner, std::uint64_t key,
          const std::uint64_t& round)
      : inner_(std::move(inner)), key_(key), round_(round) {
    args_ = inner_->args();
    workspace_bytes_ = inner_->workspace_bytes();
    const std::vector<Argument> args = arguments(op);
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (args[i].access != Access::read && !makes_probabilities(op) && args[i].dims.size() > 1 &&
          args[i].type == DataType::f32)
        results_.push_back(i);
    }
  }
  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override {
    inner_->run(pointers, workspace, queue);
    if (round_ == 0) return;
    std::mt19937_64 lot(key_ + 1000 * round_);
    for (const std::size_t result : results_) {
      auto* values = reinterpret_cast<float*>(pointers[result]);
      for (std::int64_t i = 0; i < args_[result].bytes() / size_of(DataType::f32); ++i)
        values[i] *= 1 + 0x1p-8F * (static_cast<float>(lot() >> 40) * 0x1p-23F - 1);
    }
  }

 private:
  std::shared_ptr<const PreparedOp> inner_;
  std::uint64_t key_;
  const std::uint64_t& round_;
  std::vector<std::size_t> results_;
};

/// A CPU in fp32 with NoisyOps.
class NoisyBackend : public WrappedBackend {
 public:
  explicit NoisyBackend(const std::uint64_t& round) : WrappedBackend(make_cpu_backend(1)), round_(round) {}
  std::shared_ptr<const PreparedOp> bind(const OpDesc& op, const OpForm& form, int device) const override {
    return std::make_shared<NoisyOp>(op, WrappedBackend::bind(op, form, device), ++bound_, round_);
  }

 private:
  const std::uint64_t& round_;
  mutable std::uint64_t bound_ = 0;  ///< number of operations
};

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

/// One net with its initial weights.
class TrainedOnce {
 public:
  TrainedOnce(const NetTexts& texts, const NetOptions& options)
      : net_(texts, kRandomNetImage, kRandomNetClasses, options) {
    for (const Phase phase : {Phase::train, Phase::test, Phase::check})
      REQUIRE_NOTHROW(verify(net_.prepare(phase, kImagesInBf16), net_.graph()));
    start_ = net_.tensors();
  }

  /// Returns the increments of a training step from the initial weights: the learning rates times the
  /// gradients.
  Gradients gradients() {
    for (const WeightBuffers& w : net_.net().plans().weights())
      net_.set_weights(w.name, start_.at(w.name).values);
    const Minibatch batch =
        random_minibatch(kRandomNetImage, kImagesInBf16, kRandomNetClasses, 5, random_net_matrices());
    // A step whose costs are not finite updates nothing.
    REQUIRE(all_finite(net_.step(Phase::train, batch, 0).costs));
    const std::map<std::string, NamedTensor> tensors = net_.tensors();
    Gradients increments;
    for (const auto& [name, tensor] : tensors) {
      const auto increment = tensors.find(increment_tensor(name));
      if (increment != tensors.end()) increments[name] = increment->second.values;
    }
    return increments;
  }

  const Graph& graph() const { return net_.graph(); }

 private:
  SmallNet net_;
  std::map<std::string, NamedTensor> start_;
};

NetOptions in_bf16() {
  NetOptions options;
  options.precision = Precision::bf16;
  options.extra = random_net_matrices();
  return options;
}

NetOptions in_fp32(const std::uint64_t& round) {
  NetOptions options;
  options.extra = random_net_matrices();
  options.wrap = [&round](const std::unique_ptr<Backend>&) { return std::make_unique<NoisyBackend>(round); };
  return options;
}

/// Returns ||a - b|| / ||b||; infinity if a number is not finite. Norms below 1e-8 are as good as 0: no other
/// gradients of these nets are so small.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 1e-16;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::isfinite(difference) ? std::sqrt(difference / norm) : INFINITY;
}

/// Returns the names of the functions in a definition, without their parameters.
std::set<std::string> neurons_of(const std::string& definition) {
  constexpr std::string_view kKey = "\nneuron=";
  std::set<std::string> names;
  for (std::size_t at = definition.find(kKey); at != std::string::npos; at = definition.find(kKey, at + 1)) {
    const std::size_t begin = at + kKey.size();
    names.insert(definition.substr(begin, definition.find_first_of("[\n", begin) - begin));
  }
  return names;
}

}  // namespace

TEST_CASE("random nets of all layers have the gradients in bf16 that they have in fp32") {
  constexpr int kNets = 40;
  RandomNets nets(2);
  int all = 0, sharp = 0;
  std::set<std::string> types, neurons;
  for (int i = 0; i < kNets; ++i) {
    const NetTexts texts = nets.next();
    INFO(texts.definition);
    std::uint64_t round = 0;
    TrainedOnce exact(texts, in_fp32(round));
    const Gradients expected = exact.gradients();
    const Gradients actual = TrainedOnce(texts, in_bf16()).gradients();
    // Kinks and sums of numbers of both signs make some gradients more sensitive to rounding than others.
    std::map<std::string, double> tolerance;
    for (round = 1; round <= 3; ++round) {
      for (const auto& [name, gradient] : exact.gradients())
        tolerance[name] = std::max(tolerance[name], 0.01 + 4 * distance(gradient, expected.at(name)));
    }
    for (const auto& [name, gradient] : expected) {
      INFO(name << ": " << distance(actual.at(name), gradient) << " off, of " << tolerance[name]);
      CHECK(distance(actual.at(name), gradient) < tolerance[name]);
      ++all;
      sharp += tolerance[name] < 0.12 ? 1 : 0;
    }
    for (const Node& node : exact.graph().nodes) types.insert(node.type);
    neurons.merge(neurons_of(texts.definition));
  }
  INFO(sharp << " of " << all << " gradients are compared to a few percent");
  CHECK(3 * sharp > 2 * all);
  for (const LayerType& type : layer_types()) {
    INFO(type.name);
    CHECK(types.contains(type.name));
  }
  for (const std::string& known : split_list(known_neurons())) {
    INFO(known);
    CHECK(neurons.contains(known.substr(0, known.find('['))));
  }
}
