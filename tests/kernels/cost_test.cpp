#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/kernels/op_cases.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

namespace convnet::cost_test {
using namespace test;

namespace {

using Labels = std::vector<std::int32_t>;

/// The cost array after one run, started at `costs`.
std::vector<double> logreg(std::int64_t classes, std::int64_t topk, const Labels& labels,
                           const std::vector<float>& probs, std::vector<double> costs = {0, 0, 0, 0}) {
  OpRun op(cpu::prepare(LogregForward{std::ssize(labels), classes, topk, 1}, {}));
  op.set_raw(0, labels);
  op.set(1, probs);
  op.set_raw(2, costs);
  op.run();
  return op.raw<double>(2, costs.size());
}

}  // namespace

TEST_CASE("softmax matches the reference", "[softmax]") {
  for (const auto& [n, c] : softmax_shapes()) {
    const auto x = random_values(n * c, 1, -8, 8);
    const auto dy = random_values(n * c, 2);
    OpRun op(cpu::prepare(SoftmaxForward{n, c}, {}));
    op.set(0, x);
    op.run();
    reference::Values y, dx;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto row = reference::softmax({x.begin() + i * c, x.begin() + (i + 1) * c});
      double dot = 0;
      for (std::size_t j = 0; j < row.size(); ++j) dot += row[j] * static_cast<double>(dy[y.size() + j]);
      for (std::size_t j = 0; j < row.size(); ++j)
        dx.push_back(row[j] * (static_cast<double>(dy[y.size() + j]) - dot));
      y.insert(y.end(), row.begin(), row.end());
    }
    CHECK(worst_difference(op.get(1), y) < 1e-6);
    OpRun backward(cpu::prepare(SoftmaxBackward{n, c}, {}));
    backward.set(0, op.get(1));
    backward.set(1, dy);
    backward.run();
    CHECK(worst_difference(backward.get(2), dx) < 1e-6);
  }
}

TEST_CASE("the views of an image get the mean of them", "[views]") {
  constexpr std::int64_t images = 2, views = 3, c = 4;
  const auto rows = random_values(images * views * c, 1, -3, 3);
  OpRun averaged(cpu::prepare(AverageViews{images * views, c, views}, {}));
  averaged.set(0, rows);
  averaged.run();
  reference::Values expected;
  for (std::int64_t n = 0; n < images * views; ++n)
    for (std::int64_t i = 0; i < c; ++i) {
      double mean = 0;
      for (std::int64_t v = 0; v < views; ++v)
        mean += double{rows[static_cast<std::size_t>((n / views * views + v) * c + i)]} / views;
      expected.push_back(mean);
    }
  CHECK(worst_difference(averaged.get(1), expected) < 1e-6);
  CHECK_THROWS_AS(cpu::prepare(AverageViews{4, c, views}, {}), std::logic_error);
}

TEST_CASE("softmax takes large values and shows NaN in its row alone", "[softmax]") {
  OpRun op(cpu::prepare(SoftmaxForward{3, 2}, {}));
  op.set(0, {1e30F, -1e30F, NAN, 1, 500, 500});
  op.run();
  const auto y = op.get(1);
  CHECK((y[0] == 1.0F && y[1] == 0.0F));
  CHECK((std::isnan(y[2]) && std::isnan(y[3])));
  CHECK((y[4] == 0.5F && y[5] == 0.5F));
}

TEST_CASE("logreg adds cost, top-1 and top-k errors", "[logreg]") {
  const auto costs =
      logreg(3, 2, {0, 1, 2}, {.5F, .25F, .25F, .5F, .375F, .125F, .5F, .375F, .125F}, {0, 10, 20, 30});
  CHECK(costs[0] == 0);
  CHECK(costs[1] == Approx(10 - std::log(.5) - std::log(.375) - std::log(.125)));
  CHECK(costs[2] == 22);
  CHECK(costs[3] == 31);
}

TEST_CASE("logreg writes from its slot on", "[logreg]") {
  OpRun op(cpu::prepare(LogregForward{1, 2, 1, 4}, {}));
  op.set_raw(0, Labels{0});
  op.set(1, {.25F, .75F});
  op.set_raw(2, std::vector<double>(8, 0));
  op.run();
  CHECK(op.raw<double>(2, 8) == std::vector<double>{0, 0, 0, 0, -std::log(.25), 1, 1, 0});
}

TEST_CASE("logreg shares ties", "[logreg]") {
  struct Case {
    std::vector<float> probs;
    std::int64_t topk;
    double top1, errors;
  };
  for (const Case& c : std::vector<Case>{{{.25F, .25F, .25F, .25F}, 2, .75, .5},
                                         {{.3F, .4F, .3F, 0}, 2, 1, .5},
                                         {{.3F, .4F, .3F, 0}, 3, 1, 0},
                                         {{.5F, .5F, 0, 0}, 1, .5, .5},
                                         {{.1F, .4F, .4F, .1F}, 2, 1, 1},
                                         {{.25F, .25F, .25F, .25F}, 9, .75, 0}}) {
    const auto costs = logreg(4, c.topk, {0}, c.probs);
    CHECK(costs[0] == 0);
    CHECK(costs[2] == Approx(c.top1));
    CHECK(costs[3] == Approx(c.errors));
  }
}

TEST_CASE("logreg floors the logarithm and flags what is not finite", "[logreg]") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  CHECK(logreg(2, 1, {0}, {0, 1}) == std::vector<double>{0, 50, 1, 1});
  for (float bad : {nan, inf, -inf}) {
    const auto other = logreg(2, 2, {0}, {.5F, bad});
    CHECK(other[0] == 1);
    CHECK(other[2] == 1);
    CHECK(other[3] == 1);
    CHECK(logreg(2, 1, {1}, {.5F, bad})[0] == 1);
  }
  CHECK(logreg(2, 1, {0}, {-.5F, .5F})[0] == 1);
  CHECK(logreg(2, 1, {0}, {.5F, .5F}, {1, 0, 0, 0})[0] == 1);
}

TEST_CASE("logreg gradients", "[logreg]") {
  const std::vector<float> probs{.5F, .25F, .25F, 0, .875F, .125F};
  OpRun op(cpu::prepare(LogregBackward{2, 3, 2}, {}));
  op.set_raw(0, Labels{1, 0});
  op.set(1, probs);
  op.run();
  const auto diff = op.get(2);
  CHECK(diff[1] == -8.0F);
  CHECK(diff[3] == Approx(-2 * std::exp(50.0)));
  for (std::size_t i : {0U, 2U, 4U, 5U}) CHECK(diff[i] == 0.0F);

  OpRun fused(cpu::prepare(SoftmaxLogregBackward{2, 3, 2}, {}));
  fused.set_raw(0, Labels{1, 0});
  fused.set(1, probs);
  fused.run();
  CHECK(fused.get(2) == std::vector<float>{1, -1.5F, .5F, -2, 1.75F, .25F});
}

TEST_CASE("the fused gradient is the softmax's of the cost's", "[logreg]") {
  const std::int64_t n = 5, c = 11;
  const Labels labels{0, 10, 3, 3, 7};
  OpRun softmax(cpu::prepare(SoftmaxForward{n, c}, {}));
  softmax.set(0, random_values(n * c, 3, -3, 3));
  softmax.run();
  const auto probs = softmax.get(1);
  OpRun cost(cpu::prepare(LogregBackward{n, c, 1}, {}));
  cost.set_raw(0, labels);
  cost.set(1, probs);
  cost.run();
  OpRun back(cpu::prepare(SoftmaxBackward{n, c}, {}));
  back.set(0, probs);
  back.set(1, cost.get(2));
  back.run();
  OpRun fused(cpu::prepare(SoftmaxLogregBackward{n, c, 1}, {}));
  fused.set_raw(0, labels);
  fused.set(1, probs);
  fused.run();
  CHECK(worst_difference(fused.get(2), back.get(2)) < 1e-6);
}

TEST_CASE(
    "gradients are right where probabilities are rounded to 0 and 1, also below a cost that is not fused",
    "[logreg]") {
  const std::int64_t n = 6, c = 2;
  const std::vector<float> logits = {0, 17, 55, 0, 0, 80, -110, 0, 200, 0, 0, 1000};
  const auto run = [](const auto& op, const std::vector<float>& first, const std::vector<float>& second) {
    OpRun prepared(cpu::prepare(op, {}));
    prepared.set(0, first);
    prepared.set(1, second);
    prepared.run();
    return prepared.get(2);
  };
  OpRun softmax(cpu::prepare(SoftmaxForward{n, c}, {}));
  softmax.set(0, logits);
  softmax.run();
  std::vector<float> labels = {1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1};
  std::vector<float> probs = softmax.get(1);
  CHECK(worst_difference(run(SoftmaxBackward{n, c}, probs, run(CrossentBackward{n, c, 1}, labels, probs)),
                         run(SoftmaxCrossentBackward{n, c, 1}, labels, probs)) < 1e-6);

  OpRun logistic(cpu::prepare(NeuronForward{{NeuronKind::logistic}, {n, c}}, {}));
  logistic.set(0, logits);
  logistic.run();
  probs = logistic.get(1);
  CHECK(probs[1] == 1);
  CHECK(worst_difference(run(NeuronBackward{{NeuronKind::logistic}, {n, c}}, probs,
                             run(BinaryCostBackward{n, c, 1, 2}, labels, probs)),
                         run(LogisticBinaryCostBackward{n, c, 1, 2}, labels, probs)) < 1e-6);
}

TEST_CASE("probabilities of logistic neurons stay f32 in bf16 runs", "[bce]") {
  const std::vector<std::optional<TensorDesc>> hints = {TensorDesc{{2, 3}, DataType::bf16, nullptr}};
  CHECK(cpu::prepare(NeuronForward{{NeuronKind::logistic}, {2, 3}}, hints)->args()[1].type == DataType::f32);
  CHECK(cpu::prepare(NeuronForward{{NeuronKind::tanh}, {2, 3}}, hints)->args()[1].type == DataType::bf16);
}

TEST_CASE("logreg spreads labels over classes, takes mixed ones, and weighs classes", "[logreg]") {
  const std::int64_t n = 4, c = 5;
  const std::vector<float> class_weights = {1, 0, 2, 0.5F, 3};
  // Two classes and the share of the second; the last image has one class twice.
  const Labels mixed = {0, 3, kMixedUnit / 4, 4, 2, 40000, 1, 0, 0, 2, 2, 30000};
  OpRun softmax(cpu::prepare(SoftmaxForward{n, c}, {}));
  softmax.set(0, random_values(n * c, 3, -3, 3));
  softmax.run();
  const auto probs = softmax.get(1);
  for (const float smoothing : {0.0F, 0.2F}) {
    for (const bool is_mixed : {false, true}) {
      for (const bool weighted : {false, true}) {
        INFO("smoothing " << smoothing << ", mixed " << is_mixed << ", weighted " << weighted);
        const ClassTargets targets{smoothing, is_mixed, weighted ? class_weights : std::vector<float>()};
        Labels labels;
        double cost = 0, errors = 0;
        std::vector<double> gradient, fused_gradient;
        for (std::int64_t image = 0; image < n; ++image) {
          const std::int32_t* three = mixed.data() + 3 * image;
          const double share = is_mixed ? three[2] / 65536.0 : 0;
          const std::int32_t first = three[0], second = is_mixed ? three[1] : three[0];
          labels.insert(labels.end(), three, three + (is_mixed ? 3 : 1));
          const auto weight_of = [&](std::int32_t k) {
            return weighted ? static_cast<double>(class_weights[static_cast<std::size_t>(k)]) : 1.0;
          };
          const double weight = (1 - share) * weight_of(first) + share * weight_of(second);
          const float* p = probs.data() + image * c;
          for (std::int32_t k = 0; k < c; ++k) {
            const double label = (k == first ? 1 - share : 0) + (k == second ? share : 0);
            const double s = static_cast<double>(smoothing), q = static_cast<double>(p[k]);
            const double t = (1 - s) * label + s / static_cast<double>(c);
            cost -= weight * t * std::log(q);
            gradient.push_back(-2 * weight * t / q);
            fused_gradient.push_back(2 * weight * (q - t));
          }
          const std::int32_t label = share < 0.5 ? first : second;
          errors += std::max_element(p, p + c) - p == label ? 0 : 1;
        }
        OpRun forward(cpu::prepare(LogregForward{n, c, 1, 1, targets}, {}));
        forward.set_raw(0, labels);
        forward.set(1, probs);
        forward.set_raw(2, std::vector<double>{0, 0, 0, 0});
        forward.run();
        const auto costs = forward.raw<double>(2, 3);
        CHECK(costs[0] == 0);
        CHECK(costs[1] == Approx(cost).epsilon(1e-6));
        CHECK(costs[2] == errors);
        OpRun backward(cpu::prepare(LogregBackward{n, c, 2, targets}, {}));
        OpRun fused(cpu::prepare(SoftmaxLogregBackward{n, c, 2, targets}, {}));
        for (OpRun* op : {&backward, &fused}) {
          op->set_raw(0, labels);
          op->set(1, probs);
          op->run();
        }
        CHECK(worst_difference(backward.get(2), gradient) < 1e-5);
        CHECK(worst_difference(fused.get(2), fused_gradient) < 1e-6);
      }
    }
  }
}

TEST_CASE("a label out of range is a bug and changes nothing", "[logreg]") {
  for (std::int32_t label : {-1, 3}) {
    OpRun forward(cpu::prepare(LogregForward{2, 3, 1, 1}, {}));
    forward.set_raw(0, Labels{0, label});
    forward.set(1, std::vector<float>(6, .5F));
    forward.set_raw(2, std::vector<double>(4, 0));
    CHECK_THROWS_AS(forward.run(), std::logic_error);
    CHECK(forward.raw<double>(2, 4) == std::vector<double>(4, 0));
    OpRun backward(cpu::prepare(SoftmaxLogregBackward{2, 3, 1}, {}));
    backward.set_raw(0, Labels{0, label});
    CHECK_THROWS_AS(backward.run(), std::logic_error);
    OpRun logreg_backward(cpu::prepare(LogregBackward{2, 3, 1}, {}));
    logreg_backward.set_raw(0, Labels{0, label});
    CHECK_THROWS_AS(logreg_backward.run(), std::logic_error);
  }
}

}  // namespace convnet::cost_test
