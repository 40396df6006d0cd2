// Gradients against central differences: of the interpreter in double precision, and of the fp32 program
// itself.
#include <algorithm>

#include "tests/catch.h"
#include "tests/layers/small_net.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const Dims kImage = {3, 7, 7};
constexpr int kClasses = 4;

std::string conv(const std::string& name, const std::string& keys) {
  return "[" + name + "]\ntype=conv\ninitW=0.3\ninitB=0.1\n" + keys + "\n";
}

NetTexts smooth_net() {
  return between_data_and_cost(
      conv("a", "inputs=data\nchannels=3\nfilters=6\nfilterSize=3\npadding=1\nneuron=tanh[1.7,0.6]") +
          "[p]\ntype=pool\npool=avg\ninputs=a\nchannels=6\nsizeX=3\nstride=2\n"
          "[n]\ntype=cmrnorm\ninputs=p\nchannels=6\nsize=4\n" +
          conv("b", "inputs=n,p\nchannels=6\nfilters=4\nfilterSize=2\nneuron=logistic") +
          "[f]\ntype=fc\ninputs=b,n\noutputs=5\ninitW=0.3\nneuron=tanh[1,1]\n",
      "f", kClasses, "[n]\nscale=0.5\npow=0.75\n");
}

NetTexts kinked_net() {
  return between_data_and_cost(
      conv("a", "inputs=data\nchannels=3\nfilters=5\nfilterSize=3\npadding=1\nneuron=relu") +
          "[p]\ntype=pool\npool=max\ninputs=a\nchannels=5\nsizeX=3\nstride=2\n" +
          conv("b", "inputs=p\nchannels=5\nfilters=4\nfilterSize=2\nneuron=relu"),
      "b", kClasses);
}

/// Compares analytic gradients with differences of a cost, element by element.
class GradientCheck {
 public:
  GradientCheck(double step, double tolerance) : step_(step), tolerance_(tolerance) {}

  /// `cost(x)` is the cost with this element moved by x; `scale` the largest gradient of its matrix.
  template <class Cost>
  void element(double gradient, double scale, double here, const Cost& cost) {
    const double above = (cost(step_) - here) / step_;
    const double below = (here - cost(-step_)) / step_;
    ++elements_;
    // A kink lies within the step: neither side is the derivative.
    if (std::abs(above - below) > kink_ * scale) return;
    ++checked_;
    worst_ = std::max(worst_, std::abs((above + below) / 2 - gradient) / scale);
  }
  void finish(double least_checked) const {
    INFO("worst relative error " << worst_ << ", " << checked_ << " of " << elements_ << " elements checked");
    CHECK(worst_ < tolerance_);
    CHECK(checked_ >= least_checked * elements_);
    CHECK(elements_ > 0);
  }
  void kinks(double at_least) { kink_ = at_least; }

 private:
  double step_, tolerance_;
  double kink_ = INFINITY;
  double worst_ = 0;
  int elements_ = 0, checked_ = 0;
};

template <class Values>
double largest(const Values& values) {
  double most = 1e-30;
  for (const auto v : values) most = std::max(most, std::abs(static_cast<double>(v)));
  return most;
}

/// The interpreter's gradients against differences of its own forward pass.
void check_reference(const NetTexts& texts, GradientCheck check, double least_checked) {
  SmallNet net(texts, kImage, kClasses);
  net.prepare(Phase::train, 3);
  reference::NetReference reference = net.reference();
  const Minibatch batch = random_minibatch(kImage, 3, kClasses, 5);
  const reference::Values data(batch.data.begin(), batch.data.end());
  const std::vector<int> labels(batch.labels.begin(), batch.labels.end());
  reference.forward(data, labels, true, 0);
  reference.backward();
  const double here = reference.objective();
  for (auto& [name, matrix] : reference.matrices) {
    for (std::size_t i = 0; i < matrix.values.size(); ++i) {
      check.element(matrix.gradient[i], largest(matrix.gradient), here, [&](double x) {
        const double old = std::exchange(matrix.values[i], matrix.values[i] + x);
        reference.forward(data, labels, true, 0);
        matrix.values[i] = old;
        return reference.objective();
      });
    }
  }
  check.finish(least_checked);
}

/// The fp32 program's gradients against differences of its training costs.
void check_program(const NetTexts& texts, GradientCheck check, double least_checked) {
  SmallNet net(texts, kImage, kClasses);
  net.prepare(Phase::train, 3);
  const auto start = net.tensors();
  const auto reset = [&] {
    for (const WeightBuffers& w : net.net().plans().weights())
      net.set_weights(w.name, start.at(w.name).values);
  };
  const Minibatch batch = random_minibatch(kImage, 3, kClasses, 5);
  const auto gradients = net.step(Phase::train, batch, 0, true).gradients;
  reset();
  const double here = net.step(Phase::test, batch, 0).costs[0];
  REQUIRE(gradients.size() == net.net().plans().weights().size());
  for (const auto& [name, gradient] : gradients) {
    INFO(name);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      std::vector<float> values = start.at(name).values;
      check.element(static_cast<double>(gradient[i]), largest(gradient), here, [&](double x) {
        const float old = std::exchange(values[i], values[i] + static_cast<float>(x));
        net.set_weights(name, values);
        values[i] = old;
        return net.step(Phase::test, batch, 0).costs[0];
      });
    }
    net.set_weights(name, start.at(name).values);
  }
  check.finish(least_checked);
}

}  // namespace

TEST_CASE("the interpreter's gradients are the derivatives of its costs") {
  check_reference(smooth_net(), GradientCheck(1e-5, 1e-6), 1);
  GradientCheck kinked(1e-6, 1e-4);
  kinked.kinks(1e-3);
  check_reference(kinked_net(), kinked, 0.95);
}

TEST_CASE("the program's gradients are the derivatives of its costs") {
  check_program(smooth_net(), GradientCheck(2e-2, 2e-3), 1);
}

TEST_CASE("the program's gradients through relu and max are the derivatives of its costs") {
  GradientCheck kinked(4e-3, 2e-3);
  kinked.kinks(4e-3);
  check_program(kinked_net(), kinked, 0.5);
}
