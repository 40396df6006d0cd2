#include <cmath>

#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using namespace convnet::test;

namespace {

struct CostShape {
  std::int64_t n, c;
};
const std::vector<CostShape> kCostShapes = {{0, 3}, {1, 1}, {7, 1}, {1, 5}, {5, 11}, {3, 100}, {300, 40}};

constexpr double kExact = 1e-12;  // sums of doubles

enum class LabelKind { one_hot, soft, binary };

Values labels_of(const CostShape& s, LabelKind kind) {
  Values labels = test_values({s.n, s.c}, 1);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i) % s.c, image = static_cast<std::int64_t>(i) / s.c;
    labels[i] = std::abs(labels[i]);
    if (kind == LabelKind::one_hot) labels[i] = at == image * 3 % s.c ? 1 : 0;
    if (kind == LabelKind::binary) labels[i] = std::round(labels[i]);
  }
  return labels;
}
/// The index of one class for every image.
Values classes_of(const CostShape& s) {
  Values classes;
  for (std::int64_t i = 0; i < s.n; ++i) classes.push_back(static_cast<double>(i * 3 % s.c));
  return classes;
}
/// Multiples of 1/16 in (0,1): many ties.
Values probs_of(const CostShape& s) {
  Values probs = test_values({s.n, s.c}, 2);
  for (double& p : probs) p = (1 + std::floor(std::abs(p) * 15)) / 16;
  return probs;
}

/// Costs as they were before: a number of its own for each.
std::vector<std::byte> costs(std::int64_t count) {
  Values before = {0};
  for (std::int64_t i = 1; i < count; ++i) before.push_back(static_cast<double>(10 * i));
  return doubles(before);
}
void check_costs(const OpDesc& op, std::int64_t count, const Values& labels, const Values& probs) {
  check_on_both({op, {labels, probs}, {{}, {}, costs(count)}, {}, kExact});
}

}  // namespace

TEST_CASE("logreg on both backends", "[cuda]") {
  for (const CostShape& s : kCostShapes) {
    const Values labels = classes_of(s), probs = probs_of(s);
    for (const std::int64_t topk : {1, 2, 5})
      for (const std::int64_t slot : {1, 4})
        check_costs(LogregForward{s.n, s.c, topk, slot}, slot + 4, labels, probs);
    check_on_both({LogregBackward{s.n, s.c, 0.7F}, {labels, probs}});
    check_on_both({SoftmaxLogregBackward{s.n, s.c, 0.7F}, {labels, probs}});
  }
}

TEST_CASE("logreg shares ties, has a floor and flags on both backends", "[cuda]") {
  for (const Values& probs :
       {Values{.25, .25, .25, .25}, {.3, .4, .3, 0}, {.5, .5, 0, 0}, {.1, .4, .4, .1}, {0, 0, 0, 1}})
    for (const std::int64_t topk : {1, 2, 3, 9}) check_costs(LogregForward{1, 4, topk}, 4, {0}, probs);
  for (const double bad : Values{0, 1e-30, NAN, INFINITY, -INFINITY, -0.5})
    for (const double label : {0.0, 1.0}) {
      check_costs(LogregForward{2, 2, 2}, 4, {label, 1}, {.5, bad, .5, .5});
      check_on_both({LogregBackward{1, 2, 2}, {{label}, {.5, bad}}});
      check_on_both({SoftmaxLogregBackward{1, 2, 2}, {{label}, {.5, bad}}});
    }
}

TEST_CASE("costs with a label for every output on both backends", "[cuda]") {
  for (const CostShape& s : kCostShapes)
    for (const LabelKind kind : {LabelKind::one_hot, LabelKind::soft, LabelKind::binary}) {
      const Values labels = labels_of(s, kind), probs = probs_of(s);
      check_costs(CrossentForward{s.n, s.c, 2}, 5, labels, probs);
      check_on_both({CrossentBackward{s.n, s.c, 0.7F}, {labels, probs}});
      check_on_both({SoftmaxCrossentBackward{s.n, s.c, 0.7F}, {labels, probs}});
      for (const float pos_weight : {1.0F, 2.5F, 0.0F}) {
        check_costs(BinaryCostForward{s.n, s.c, 2, pos_weight}, 6, labels, probs);
        check_costs(BinaryCostForward{s.n, s.c, 2, pos_weight, true}, 5 + 3 * s.c, labels, probs);
        check_on_both({BinaryCostBackward{s.n, s.c, 0.7F, pos_weight}, {labels, probs}});
        check_on_both({LogisticBinaryCostBackward{s.n, s.c, 0.7F, pos_weight}, {labels, probs}});
      }
    }
}

TEST_CASE("label costs share ties, have a floor and flag on both backends", "[cuda]") {
  const auto check = [](const Values& labels, const Values& probs) {
    const auto c = std::ssize(labels);
    check_costs(CrossentForward{1, c}, 4, labels, probs);
    check_costs(BinaryCostForward{1, c, 1, 3}, 5, labels, probs);
    check_costs(BinaryCostForward{1, c, 1, 3, true}, 4 + 3 * c, labels, probs);
    check_on_both({CrossentBackward{1, c, 2}, {labels, probs}});
    check_on_both({SoftmaxCrossentBackward{1, c, 2}, {labels, probs}});
    check_on_both({BinaryCostBackward{1, c, 2, 3}, {labels, probs}});
    check_on_both({LogisticBinaryCostBackward{1, c, 2, 3}, {labels, probs}});
  };
  check({1, 0, 0, 0}, {.25, .25, .25, .25});
  check({1, 0, 1, 0}, {.25, .25, .25, .25});
  check({1, 0, 0, 0}, {.5, .5, 0, 0});
  check({0, 0, 1, 0}, {.5, .5, 0, 0});
  check({.2, .5, .3, 0}, {.1, .7, .2, 0});
  check({0, 0, 0, 0}, {.7, .1, .2, 0});
  check({0, 1, 0, 1, .5, .5}, {0, 0, 1, 1, 0, 1});
  for (const double bad : Values{0, 1, 1e-30, NAN, INFINITY, -INFINITY, -0.5}) {
    check({1, 0}, {bad, .5});
    check({0, 1}, {bad, .5});
  }
}

TEST_CASE("squares on both backends", "[cuda]") {
  // The last are several parts, the last of which is not whole.
  for (const Dims& dims : {Dims{2, 20, 3, 5}, Dims{1, 1, 1, 1}, Dims{3, 7}, Dims{0, 20, 3, 3}, Dims{0, 4},
                           Dims{3, 33, 21, 19}, Dims{100, 91}}) {
    check_on_both({SquaresForward{dims, 2}, {}, {{}, costs(4)}, {}, kExact});
    check_on_both({SquaresBackward{dims, -1.5F}});
  }
  for (const double value : Values{1e30, NAN, INFINITY})
    check_on_both({SquaresForward{{1, 2}}, {{1, value}}, {{}, costs(3)}});
}
