#include <cmath>

#include "tests/kernels/op_cases.h"

namespace convnet::test {
namespace {

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
/// Two classes and the share of the second one for every image.
Values mixed_labels(const CostShape& s) {
  Values labels;
  for (std::int64_t i = 0; i < s.n; ++i)
    for (const std::int64_t value : {i * 3 % s.c, i * 5 % s.c, i * 20011 % kMixedUnit})
      labels.push_back(static_cast<double>(value));
  return labels;
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
OpCase cost_case(OpDesc op, std::int64_t count, const Values& labels, const Values& probs) {
  return {std::move(op), {labels, probs}, {{}, {}, costs(count)}, {}, kExact};
}

void add_softmax(std::vector<OpCase>& cases) {
  for (const CostShape& s : softmax_shapes()) {
    Values x = test_values({s.n, s.c}, 1);
    for (double& v : x) v *= 8;
    cases.push_back({SoftmaxForward{s.n, s.c}, {x}});
    for (double& v : x) v = std::abs(v) / 8;
    cases.push_back({SoftmaxBackward{s.n, s.c}, {x}});
  }
  // Large values and none, in one row each: an outlier shows in its own.
  for (const double bad : Values{1e30, -1e30, NAN, INFINITY, -INFINITY}) {
    cases.push_back({SoftmaxForward{3, 2}, {{bad, 1, 500, 500, 2, bad}}});
    cases.push_back({SoftmaxForward{2, 2}, {{bad, bad, 1, 2}}});
    cases.push_back({SoftmaxBackward{2, 2}, {{0.5, 0.5, 0.25, 0.75}, {bad, 1, 1, 2}}});
  }
  cases.push_back({SoftmaxBackward{2, 2}, {{1e-30, 1, 0, 1}, {-5e21, 0, -5e21, 2}}});
  for (const std::int64_t views : {2, 9}) cases.push_back({AverageViews{4 * views, 11, views}});
}

ClassTargets class_targets(std::int64_t classes, float smoothing, bool mixed, bool weighted) {
  ClassTargets targets{smoothing, mixed};
  for (std::int64_t i = 0; weighted && i < classes; ++i)
    targets.class_weights.push_back(0.25F * static_cast<float>(1 + i % 6));
  return targets;
}

void add_logreg(std::vector<OpCase>& cases, const CostShape& s) {
  const Values labels = classes_of(s), probs = probs_of(s);
  for (const std::int64_t topk : {1, 2, 5})
    for (const std::int64_t slot : {1, 4})
      cases.push_back(cost_case(LogregForward{s.n, s.c, topk, slot}, slot + 4, labels, probs));
  cases.push_back({LogregBackward{s.n, s.c, 0.7F}, {labels, probs}});
  cases.push_back({SoftmaxLogregBackward{s.n, s.c, 0.7F}, {labels, probs}});
  for (const bool mixed : {false, true})
    for (const float smoothing : {0.0F, 0.1F, 1.0F})
      for (const bool weighted : {false, true}) {
        const ClassTargets targets = class_targets(s.c, smoothing, mixed, weighted);
        const Values& these = mixed ? mixed_labels(s) : labels;
        OpCase forward = cost_case(LogregForward{s.n, s.c, 2, 1, targets}, 5, these, probs);
        forward.tolerance = 1e-6;
        cases.push_back(std::move(forward));
        cases.push_back({LogregBackward{s.n, s.c, 0.7F, targets}, {these, probs}});
        cases.push_back({SoftmaxLogregBackward{s.n, s.c, 0.7F, targets}, {these, probs}});
      }
}

/// Ties, floors and flags.
void add_logreg_limits(std::vector<OpCase>& cases) {
  for (const Values& probs :
       {Values{.25, .25, .25, .25}, {.3, .4, .3, 0}, {.5, .5, 0, 0}, {.1, .4, .4, .1}, {0, 0, 0, 1}})
    for (const std::int64_t topk : {1, 2, 3, 9})
      cases.push_back(cost_case(LogregForward{1, 4, topk}, 4, {0}, probs));
  for (const double bad : Values{0, 1e-30, NAN, INFINITY, -INFINITY, -0.5})
    for (const double label : {0.0, 1.0}) {
      cases.push_back(cost_case(LogregForward{2, 2, 2}, 4, {label, 1}, {.5, bad, .5, .5}));
      cases.push_back({LogregBackward{1, 2, 2}, {{label}, {.5, bad}}});
      cases.push_back({SoftmaxLogregBackward{1, 2, 2}, {{label}, {.5, bad}}});
    }
}

void add_label_costs(std::vector<OpCase>& cases, const CostShape& s, LabelKind kind) {
  const Values labels = labels_of(s, kind), probs = probs_of(s);
  cases.push_back(cost_case(CrossentForward{s.n, s.c, 2}, 5, labels, probs));
  cases.push_back({CrossentBackward{s.n, s.c, 0.7F}, {labels, probs}});
  cases.push_back({SoftmaxCrossentBackward{s.n, s.c, 0.7F}, {labels, probs}});
  for (const float pos_weight : {1.0F, 2.5F, 0.0F}) {
    cases.push_back(cost_case(BinaryCostForward{s.n, s.c, 2, pos_weight}, 6, labels, probs));
    cases.push_back(cost_case(BinaryCostForward{s.n, s.c, 2, pos_weight, true}, 5 + 3 * s.c, labels, probs));
    cases.push_back({BinaryCostBackward{s.n, s.c, 0.7F, pos_weight}, {labels, probs}});
    cases.push_back({LogisticBinaryCostBackward{s.n, s.c, 0.7F, pos_weight}, {labels, probs}});
  }
}

/// One image.
void add_label_costs(std::vector<OpCase>& cases, const Values& labels, const Values& probs) {
  const auto c = std::ssize(labels);
  cases.push_back(cost_case(CrossentForward{1, c}, 4, labels, probs));
  cases.push_back(cost_case(BinaryCostForward{1, c, 1, 3}, 5, labels, probs));
  cases.push_back(cost_case(BinaryCostForward{1, c, 1, 3, true}, 4 + 3 * c, labels, probs));
  cases.push_back({CrossentBackward{1, c, 2}, {labels, probs}});
  cases.push_back({SoftmaxCrossentBackward{1, c, 2}, {labels, probs}});
  cases.push_back({BinaryCostBackward{1, c, 2, 3}, {labels, probs}});
  cases.push_back({LogisticBinaryCostBackward{1, c, 2, 3}, {labels, probs}});
}

}  // namespace

ClassTargets class_targets(std::int64_t classes, float smoothing, bool mixed, bool weighted) {
  ClassTargets targets{smoothing, mixed};
  for (std::int64_t i = 0; weighted && i < classes; ++i)
    targets.class_weights.push_back(0.25F * static_cast<float>(1 + i % 6));
  return targets;
}

std::vector<CostShape> softmax_shapes() {
  std::vector<CostShape> all;
  for (const std::int64_t n : {0, 1, 37})
    for (const std::int64_t c : {1, 2, 10, 33, 1000}) all.push_back({n, c});
  return all;
}

std::vector<CostShape> label_cost_shapes() { return {{1, 1}, {7, 1}, {1, 5}, {5, 11}, {3, 100}}; }

std::vector<LabelTie> label_ties() {
  return {{{1, 0, 0, 0}, {.25, .25, .25, .25}, .75}, {{1, 0, 1, 0}, {.25, .25, .25, .25}, .5},
          {{1, 0, 0, 0}, {.5, .5, 0, 0}, .5},        {{0, 0, 1, 0}, {.5, .5, 0, 0}, 1},
          {{.2, .5, .3, 0}, {.1, .7, .2, 0}, 0},     {{.2, .5, .3, 0}, {.7, .1, .2, 0}, 1},
          {{0, 0, 0, 0}, {.7, .1, .2, 0}, 0}};  // all labels are the largest
}

std::vector<Dims> squares_shapes() {
  // The last two are several parts, the last of which is not whole.
  return {{2, 20, 3, 5}, {1, 1, 1, 1}, {3, 7}, {1, 1}, {0, 20, 3, 3}, {0, 4}, {3, 33, 21, 19}, {100, 91}};
}

std::vector<OpCase> cost_cases() {
  std::vector<OpCase> cases;
  add_softmax(cases);
  std::vector<CostShape> shapes = label_cost_shapes();
  shapes.insert(shapes.end(), {{0, 3}, {300, 40}});
  for (const CostShape& s : shapes) {
    add_logreg(cases, s);
    for (const LabelKind kind : {LabelKind::one_hot, LabelKind::soft, LabelKind::binary})
      add_label_costs(cases, s, kind);
  }
  add_logreg_limits(cases);
  for (const LabelTie& tie : label_ties()) add_label_costs(cases, tie.labels, tie.probs);
  add_label_costs(cases, {0, 1, 0, 1, .5, .5}, {0, 0, 1, 1, 0, 1});
  for (const double bad : Values{0, 1, 1e-30, NAN, INFINITY, -INFINITY, -0.5}) {
    add_label_costs(cases, {1, 0}, {bad, .5});
    add_label_costs(cases, {0, 1}, {bad, .5});
  }
  for (const Dims& dims : squares_shapes()) {
    cases.push_back({SquaresForward{dims, 2}, {}, {{}, costs(4)}, {}, kExact});
    cases.push_back({SquaresBackward{dims, -1.5F}});
  }
  for (const double value : Values{1e30, NAN, INFINITY})
    cases.push_back({SquaresForward{{1, 2}}, {{1, value}}, {{}, costs(3)}});
  return cases;
}

}  // namespace convnet::test
