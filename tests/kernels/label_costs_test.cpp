#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tests/catch.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

namespace convnet::label_costs_test {
using namespace test;

namespace {

using reference::central_differences;
using reference::to_doubles;
using reference::Values;

/// The table's shapes, and one for several threads.
std::vector<CostShape> shapes() {
  std::vector<CostShape> all = label_cost_shapes();
  all.push_back({500, 40});
  return all;
}
constexpr std::int64_t kSmall = 300;  // outputs for central differences

enum class LabelKind { one_hot, soft, binary };

Floats labels_of(const CostShape& s, LabelKind kind) {
  Floats labels = random_values(s.n * s.c, 1, 0, 1);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto class_index = static_cast<std::int64_t>(i) % s.c, image = static_cast<std::int64_t>(i) / s.c;
    if (kind == LabelKind::one_hot) labels[i] = class_index == image * 3 % s.c ? 1.0F : 0.0F;
    if (kind == LabelKind::binary) labels[i] = std::round(labels[i]);
  }
  return labels;
}
/// Multiples of 1/16 in (0,1): many ties, and not much below 1/16 for central differences.
Floats probs_of(const CostShape& s) {
  Floats probs = random_values(s.n * s.c, 2, 1, 16);
  for (float& p : probs) p = std::floor(p) / 16;
  return probs;
}

double weighted_log(double weight, double p) {
  return weight == 0 ? 0 : weight * std::max(std::log(p), -50.0);
}

/// The costs of all outputs.
Values crossent(const Values& labels, const Values& probs) {
  Values costs;
  for (std::size_t i = 0; i < probs.size(); ++i) costs.push_back(-weighted_log(labels[i], probs[i]));
  return costs;
}
Values binary(const Values& labels, const Values& probs, double pos_weight) {
  Values costs;
  for (std::size_t i = 0; i < probs.size(); ++i)
    costs.push_back(-pos_weight * weighted_log(labels[i], probs[i]) -
                    weighted_log(1 - labels[i], 1 - probs[i]));
  return costs;
}
/// exp(x)/sum of each image of `classes`.
Values softmax_of(const Values& x, std::int64_t classes) {
  Values probs;
  const auto c = static_cast<std::size_t>(classes);
  for (std::size_t row = 0; row < x.size(); row += c) {
    double sum = 0;
    for (std::size_t i = row; i < row + c; ++i) sum += std::exp(x[i]);
    for (std::size_t i = row; i < row + c; ++i) probs.push_back(std::exp(x[i]) / sum);
  }
  return probs;
}
double sum_of(const Values& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return sum;
}

/// Top-1 errors: of the t most probable outputs of an image, r hold its largest label.
double errors(const CostShape& s, const Floats& labels, const Floats& probs) {
  double sum = 0;
  for (std::int64_t n = 0; n < s.n; ++n) {
    const auto first = n * s.c, last = first + s.c;
    const float best = *std::max_element(probs.begin() + first, probs.begin() + last);
    const float label = *std::max_element(labels.begin() + first, labels.begin() + last);
    double t = 0, r = 0;
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i)
      if (probs[i] == best) ++t, r += labels[i] == label;
    sum += 1 - r / t;
  }
  return sum;
}
/// The fraction of outputs on the wrong side of 0.5, summed over images.
double wrong(const CostShape& s, const Floats& labels, const Floats& probs) {
  double count = 0;
  for (std::size_t i = 0; i < probs.size(); ++i) count += (labels[i] > 0.5F) != (probs[i] > 0.5F);
  return count / static_cast<double>(s.c);
}

/// The costs after `op`, whose last argument they are, started at `costs`: the same bits for any number of
/// threads.
Values costs_of(const cpu::Prepared& op, const std::vector<Floats>& inputs, const Values& costs) {
  std::vector<Values> results;
  for (const int threads : {1, 2, 3}) {
    OpRun run(op, static_cast<std::int64_t>(costs.size() * sizeof(double)));
    for (std::size_t i = 0; i < inputs.size(); ++i) run.set(i, inputs[i]);
    run.set_raw(inputs.size(), costs);
    run.run(threads);
    results.push_back(run.raw<double>(inputs.size(), costs.size()));
    CHECK(same_bits(results.back(), results.front()));
  }
  return results.front();
}

void check_costs(const Values& actual, const Values& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    INFO("cost " << i);
    CHECK(actual[i] == Approx(expected[i]).epsilon(1e-9).margin(1e-9));
  }
}

/// d(coeff * sum of cost(x))/dx
template <class Cost>
Values gradient(const Cost& cost, const Floats& x, float coeff) {
  return central_differences(cost, to_doubles(x), Values(x.size(), static_cast<double>(coeff)));
}

const float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("crossent adds cost and errors from its slot on", "[label_costs]") {
  for (const CostShape& s : shapes())
    for (LabelKind kind : {LabelKind::one_hot, LabelKind::soft}) {
      INFO(s.n << " images, " << s.c << " classes");
      const Floats labels = labels_of(s, kind), probs = probs_of(s);
      const double cost = sum_of(crossent(to_doubles(labels), to_doubles(probs)));
      check_costs(
          costs_of(cpu::prepare(CrossentForward{s.n, s.c, 2}, {}), {labels, probs}, {0, 1, 20, 30, 4}),
          {0, 1, 20 + cost, 30 + errors(s, labels, probs), 4});
    }
}

TEST_CASE("binary cost adds cost, wrong outputs and errors", "[label_costs]") {
  for (const CostShape& s : shapes())
    for (LabelKind kind : {LabelKind::one_hot, LabelKind::soft, LabelKind::binary})
      for (float pos_weight : {1.0F, 2.5F, 0.0F}) {
        INFO(s.n << " images, " << s.c << " classes, posWeight " << pos_weight);
        const Floats labels = labels_of(s, kind), probs = probs_of(s);
        const double cost =
            sum_of(binary(to_doubles(labels), to_doubles(probs), static_cast<double>(pos_weight)));
        check_costs(costs_of(cpu::prepare(BinaryCostForward{s.n, s.c, 1, pos_weight}, {}), {labels, probs},
                             {0, 10, 20, 30, 4}),
                    {0, 10 + cost, 20 + wrong(s, labels, probs), 30 + errors(s, labels, probs), 4});

        Values before = {0, 1}, expected;
        for (std::int64_t i = 0; i < 2 + 3 * s.c + 1; ++i) before.push_back(static_cast<double>(i));
        expected = before;
        expected[2] += cost;
        expected[3] += wrong(s, labels, probs);
        for (std::size_t i = 0; i < probs.size(); ++i) {
          double* counts = expected.data() + 4 + 3 * (i % static_cast<std::size_t>(s.c));
          counts[0] += probs[i] > 0.5F && labels[i] > 0.5F;
          counts[1] += probs[i] > 0.5F;
          counts[2] += labels[i] > 0.5F;
        }
        check_costs(costs_of(cpu::prepare(BinaryCostForward{s.n, s.c, 2, pos_weight, true}, {}),
                             {labels, probs}, before),
                    expected);
      }
}

TEST_CASE("label costs share ties", "[label_costs]") {
  for (const LabelTie& tie : label_ties()) {
    const Floats labels(tie.labels.begin(), tie.labels.end()), probs(tie.probs.begin(), tie.probs.end());
    CHECK(costs_of(cpu::prepare(CrossentForward{1, 4, 1}, {}), {labels, probs}, Values(3))[2] ==
          Approx(tie.errors));
    CHECK(costs_of(cpu::prepare(BinaryCostForward{1, 4, 1}, {}), {labels, probs}, Values(4))[3] ==
          Approx(tie.errors));
  }
}

TEST_CASE("label costs floor the logarithm and flag what is not finite", "[label_costs]") {
  const auto crossent_of = [](const Floats& labels, const Floats& probs) {
    return costs_of(cpu::prepare(CrossentForward{1, 2, 1}, {}), {labels, probs}, Values(3));
  };
  const auto binary_of = [](const Floats& labels, const Floats& probs) {
    return costs_of(cpu::prepare(BinaryCostForward{1, 2, 1, 3.0F}, {}), {labels, probs}, Values(4));
  };
  CHECK(crossent_of({1, 0}, {0, 1}) == Values{0, 50, 1});
  CHECK(crossent_of({0, 1}, {0, 1}) == Values{0, 0, 0});
  CHECK(crossent_of({0, 1}, {0, 1e-30F})[1] == 50);
  CHECK(binary_of({1, 0}, {0, 1}) == Values{0, 3 * 50 + 50, 1, 1});
  CHECK(binary_of({1, 0}, {1, 0}) == Values{0, 0, 0, 0});
  for (float bad : {NAN, kInfinity, -kInfinity, -0.5F}) {
    INFO("output " << bad);
    for (const Values& costs : {crossent_of({1, 0}, {bad, .5F}), binary_of({1, 0}, {bad, .5F})}) {
      CHECK(costs.front() == 1);
      CHECK(costs.back() == 1);  // an error, too
    }
  }
  for (float bad : {NAN, kInfinity, -kInfinity}) CHECK(crossent_of({0, 1}, {bad, .5F})[0] == 1);
  CHECK(costs_of(cpu::prepare(CrossentForward{1, 2, 1}, {}), {{1, 0}, {.5F, .5F}}, {1, 0, 0})[0] == 1);
}

TEST_CASE("no images cost nothing", "[label_costs]") {
  const Values costs = {0, 1, 2, 3, 4};
  CHECK(costs_of(cpu::prepare(CrossentForward{0, 3, 1}, {}), {{}, {}}, costs) == costs);
  CHECK(costs_of(cpu::prepare(BinaryCostForward{0, 3, 1}, {}), {{}, {}}, costs) == costs);
  CHECK(costs_of(cpu::prepare(SquaresForward{{0, 20, 3, 3}, 1}, {}), {{}}, costs) == costs);
}

TEST_CASE("label cost gradients match central differences", "[label_costs]") {
  for (const CostShape& s : shapes())
    for (LabelKind kind : {LabelKind::one_hot, LabelKind::soft, LabelKind::binary})
      for (float pos_weight : {1.0F, 2.5F}) {
        INFO(s.n << " images, " << s.c << " classes, posWeight " << pos_weight);
        constexpr float kCoeff = 0.7F;
        const Floats labels = labels_of(s, kind), probs = probs_of(s);
        const Floats x = random_values(s.n * s.c, 4, -3, 3);
        const auto logistic = [](double at) { return 1 / (1 + std::exp(-at)); };
        Floats outputs;
        for (float v : x) outputs.push_back(static_cast<float>(logistic(static_cast<double>(v))));
        const Values t = to_doubles(labels);
        const auto weight = static_cast<double>(pos_weight);

        const Floats d_crossent =
            results_of(cpu::prepare(CrossentBackward{s.n, s.c, kCoeff}, {}), {labels, probs})[0];
        const Floats d_binary = results_of(cpu::prepare(BinaryCostBackward{s.n, s.c, kCoeff, pos_weight}, {}),
                                           {labels, probs})[0];
        const Floats d_logistic = results_of(
            cpu::prepare(LogisticBinaryCostBackward{s.n, s.c, kCoeff, pos_weight}, {}), {labels, outputs})[0];
        if (s.n * s.c > kSmall) continue;
        CHECK(worst_difference(d_crossent, gradient([&](const Values& p) { return crossent(t, p); }, probs,
                                                    kCoeff)) < 1e-6);
        CHECK(worst_difference(d_binary, gradient([&](const Values& p) { return binary(t, p, weight); },
                                                  probs, kCoeff)) < 1e-6);
        CHECK(worst_difference(d_logistic, gradient(
                                               [&](const Values& at) {
                                                 Values p;
                                                 for (double v : at) p.push_back(logistic(v));
                                                 return binary(t, p, weight);
                                               },
                                               x, kCoeff)) < 1e-6);
      }
}

TEST_CASE("softmax and crossent differentiated together match central differences", "[label_costs]") {
  constexpr float kCoeff = 0.7F;
  for (const CostShape& s : shapes())
    for (LabelKind kind : {LabelKind::one_hot, LabelKind::soft, LabelKind::binary}) {
      INFO(s.n << " images, " << s.c << " classes");
      const Floats labels = labels_of(s, kind), x = random_values(s.n * s.c, 4, -3, 3);
      const Values t = to_doubles(labels);
      Floats probs;
      for (double p : softmax_of(to_doubles(x), s.c)) probs.push_back(static_cast<float>(p));
      const Floats together =
          results_of(cpu::prepare(SoftmaxCrossentBackward{s.n, s.c, kCoeff}, {}), {labels, probs})[0];
      if (s.n * s.c > kSmall) continue;
      // An output changes the costs of all outputs of its image.
      const auto of_image = [&](const Values& at) {
        Values costs = crossent(t, softmax_of(at, s.c));
        for (std::size_t i = 0; i < costs.size(); i += static_cast<std::size_t>(s.c))
          for (std::size_t k = 1; k < static_cast<std::size_t>(s.c); ++k)
            costs[i] += std::exchange(costs[i + k], 0.0);
        return costs;
      };
      CHECK(worst_difference(together, gradient(of_image, x, kCoeff)) < 1e-6);
    }
}

TEST_CASE("softmax and crossent keep the gradient of labels that are all but impossible", "[label_costs]") {
  const Floats labels = {1, 0, 0, 1, .25F, .25F, 0, 2, 0}, probs = {0, 1, 1e-30F, 1, 1e-38F, 0, 0, 0, 1};
  CHECK(results_of(cpu::prepare(SoftmaxCrossentBackward{3, 3, 2}, {}), {labels, probs})[0] ==
        Floats{-2, 2, 2e-30F, 1, -.5F, -.5F, 0, -4, 4});
  for (float bad : {NAN, kInfinity}) {
    const Floats diff =
        results_of(cpu::prepare(SoftmaxCrossentBackward{1, 2, 1}, {}), {{1, 0}, {bad, .5F}})[0];
    CHECK_FALSE(std::isfinite(diff[0]));
  }
}

TEST_CASE("label cost gradients of certain outputs are finite", "[label_costs]") {
  const Floats labels = {0, 1, 0, 1, .5F, .5F}, probs = {0, 0, 1, 1, 0, 1};
  const double limit = std::exp(50.0);
  const Floats d_crossent = results_of(cpu::prepare(CrossentBackward{2, 3, 2}, {}), {labels, probs})[0];
  CHECK(worst_difference(d_crossent, Values{0, -2 * limit, 0, -2, -limit, -1}) < 1e-6);
  const Floats d_binary = results_of(cpu::prepare(BinaryCostBackward{2, 3, 2, 3}, {}), {labels, probs})[0];
  CHECK(worst_difference(d_binary, Values{2, -6 * limit, 2 * limit, -6, 1 - 3 * limit, limit - 3}) < 1e-6);
  const Floats d_logistic =
      results_of(cpu::prepare(LogisticBinaryCostBackward{2, 3, 2, 3}, {}), {labels, probs})[0];
  CHECK(d_logistic == Floats{0, -6, 2, 0, -3, 1});
  CHECK((all_finite(d_crossent) && all_finite(d_binary)));
}

TEST_CASE("squares are added in every layout, and their gradient", "[label_costs]") {
  for (const Dims& dims : squares_shapes())
    for (int block : blocks_of(dims)) {
      INFO(to_string(dims) << " block " << block);
      const TensorDesc layout = activations(dims, block);
      const Floats x = random_values(element_count(dims), 1, -2, 2);
      const auto squares = [](const Values& at) {
        Values all;
        for (double v : at) all.push_back(v * v);
        return all;
      };
      const auto forward = cpu::prepare(SquaresForward{dims, 2}, {layout});
      CHECK(same_layout(forward->args()[0], layout));
      check_costs(costs_of(forward, {x}, {0, 1, 2, 3}), {0, 1, 2 + sum_of(squares(to_doubles(x))), 3});
      const Floats dx = results_of(cpu::prepare(SquaresBackward{dims, -1.5F}, {layout}), {x})[0];
      Floats expected;
      for (float v : x) expected.push_back(-3 * v);
      CHECK(dx == expected);
      if (element_count(dims) <= kSmall * 2) CHECK(worst_difference(dx, gradient(squares, x, -1.5F)) < 1e-6);
    }
}

TEST_CASE("squares flag what is not finite", "[label_costs]") {
  const auto flag = [](float v) {
    return costs_of(cpu::prepare(SquaresForward{{1, 2}, 1}, {}), {{1, v}}, Values(2))[0];
  };
  CHECK(flag(1e30F) == 0);  // its square fits into a double
  for (float bad : {NAN, kInfinity, -kInfinity}) CHECK(flag(bad) == 1);
}

}  // namespace convnet::label_costs_test
