// Softmax and the costs, with their gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "convnet/base/mixed_labels.h"
#include "kernels/ops/argument.h"

namespace convnet {

/// Softmax over the second dimension of (N,C).
struct SoftmaxForward {
  std::int64_t n = 0, c = 0;

  std::string name() const { return "softmax.forward"; }
  std::vector<Argument> arguments() const { return args::src_to_dst({n, c}, {n, c}); }
};
struct SoftmaxBackward {
  std::int64_t n = 0, c = 0;

  std::string name() const { return "softmax.backward"; }
  std::vector<Argument> arguments() const {
    return {args::read("dst", {n, c}), args::read("diff_dst", {n, c}), args::write("diff_src", {n, c})};
  }
};

/// Replaces each row of (N,C) by the mean of the `views` consecutive rows that are views of its image. n is a
/// multiple of `views`.
struct AverageViews {
  std::int64_t n = 0, c = 0, views = 1;

  std::string name() const { return "views.average"; }
  std::vector<Argument> arguments() const { return args::src_to_dst({n, c}, {n, c}); }
  std::vector<std::int64_t> settings() const { return {views}; }
};

/// The target probabilities t of images: (1 - smoothing) * s + smoothing / classes, where s is 1 for the
/// label's class, or for mixed images the shares of the two classes. An image is weighted by class_weights of
/// its class, or by their mean over its two classes.
struct ClassTargets {
  float smoothing = 0;
  /// Labels have kMixedLabelValues values for each image; else one, the index of a class.
  bool mixed = false;
  std::vector<float> class_weights = {};  ///< by class; empty: all are 1

  std::int64_t label_values() const { return mixed ? kMixedLabelValues : 1; }
};

namespace args {

/// The arguments of a cost of n images whose labels are classes.
inline std::vector<Argument> class_cost_forward(std::int64_t n, std::int64_t c, const ClassTargets& targets) {
  return {read("labels", {n, targets.label_values()}, DataType::s32), read("probs", {n, c}), costs()};
}
inline std::vector<Argument> class_cost_backward(std::int64_t n, std::int64_t c,
                                                 const ClassTargets& targets) {
  return {read("labels", {n, targets.label_values()}, DataType::s32), read("probs", {n, c}),
          write("diff_src", {n, c})};
}
/// The arguments of a cost with a label for every output.
inline std::vector<Argument> label_cost_forward(std::int64_t n, std::int64_t c) {
  return {read("labels", {n, c}), read("probs", {n, c}), costs()};
}
inline std::vector<Argument> label_cost_backward(std::int64_t n, std::int64_t c) {
  return {read("labels", {n, c}), read("probs", {n, c}), write("diff_src", {n, c})};
}

}  // namespace args

/// Multinomial logistic cost. Adds to costs[slot..slot+2]: the sum of -t log p over images and classes, the
/// number of top-1 errors, and of top-k errors. The label of a mixed image is the class with the larger
/// share. log p is floored at -50. An image whose label ties with other classes for the last of the k places
/// counts as a fraction of an error. Sets costs[0] = 1 if a cost or a probability is not finite.
struct LogregForward {
  std::int64_t n = 0, c = 0;
  std::int64_t topk = 1;
  std::int64_t slot = 1;
  ClassTargets targets = {};

  std::string name() const { return "logreg.forward"; }
  std::vector<Argument> arguments() const { return args::class_cost_forward(n, c, targets); }
};
/// diff_src = -coeff * t / p, p floored at exp(-50).
struct LogregBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1;
  ClassTargets targets = {};

  std::string name() const { return "logreg.backward"; }
  std::vector<Argument> arguments() const { return args::class_cost_backward(n, c, targets); }
};
/// diff_src = coeff * (p - t): the gradient of softmax and cost together.
struct SoftmaxLogregBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1;
  ClassTargets targets = {};

  std::string name() const { return "softmax+logreg.backward"; }
  std::vector<Argument> arguments() const { return args::class_cost_backward(n, c, targets); }
};

/// Multinomial cost of one-hot (or soft) labels t. Adds -sum t*log p (log p floored at -50) and the number of
/// top-1 errors to costs[slot..slot+1]. If m outputs tie as the most probable ones, and r of these have the
/// largest label, the image counts as 1 - r/m errors. Sets costs[0] as LogregForward does.
struct CrossentForward {
  std::int64_t n = 0, c = 0, slot = 1;

  std::string name() const { return "crossent.forward"; }
  std::vector<Argument> arguments() const { return args::label_cost_forward(n, c); }
};
/// diff_src = coeff * -t/p, p floored at exp(-50).
struct CrossentBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1;

  std::string name() const { return "crossent.backward"; }
  std::vector<Argument> arguments() const { return args::label_cost_backward(n, c); }
};
/// diff_src = coeff * (p * (sum of the image's labels) - t): the gradient of softmax and cross entropy
/// together.
struct SoftmaxCrossentBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1;

  std::string name() const { return "softmax+crossent.backward"; }
  std::vector<Argument> arguments() const { return args::label_cost_backward(n, c); }
};

/// Binary cross entropy of labels t in [0,1]: -sum(pos_weight*t*log p + (1-t)*log(1-p)), logs floored at -50.
/// Adds to costs[slot...], summed over images: the cost, the fraction of outputs on the wrong side of 0.5,
/// and the number of top-1 errors as CrossentForward counts them. With `per_class` (cost.dce) there is no
/// third value; instead three counts follow for every class: outputs p > 0.5 that are right, all p > 0.5, all
/// labels t > 0.5.
struct BinaryCostForward {
  std::int64_t n = 0, c = 0, slot = 1;
  float pos_weight = 1;
  bool per_class = false;

  std::string name() const { return per_class ? "dce.forward" : "bce.forward"; }
  std::vector<Argument> arguments() const { return args::label_cost_forward(n, c); }
};
/// diff_src = coeff * ((1-t)/(1-p) - pos_weight*t/p), divisors floored at exp(-50).
struct BinaryCostBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1, pos_weight = 1;

  std::string name() const { return "bce.backward"; }
  std::vector<Argument> arguments() const { return args::label_cost_backward(n, c); }
};
/// diff_src = coeff * ((1-t)*p - pos_weight*t*(1-p)): the gradient of logistic and cost.bce together.
struct LogisticBinaryCostBackward {
  std::int64_t n = 0, c = 0;
  float coeff = 1, pos_weight = 1;

  std::string name() const { return "logistic+bce.backward"; }
  std::vector<Argument> arguments() const { return args::label_cost_backward(n, c); }
};

/// Adds sum x^2 to costs[slot].
struct SquaresForward {
  Dims dims;
  std::int64_t slot = 1;

  std::string name() const { return "sum2.forward"; }
  std::vector<Argument> arguments() const { return {args::read("src", dims), args::costs()}; }
};
/// diff_src = coeff * 2x.
struct SquaresBackward {
  Dims dims;
  float coeff = 1;

  std::string name() const { return "sum2.backward"; }
  std::vector<Argument> arguments() const { return {args::read("src", dims), args::write("diff_src", dims)}; }
};

}  // namespace convnet
