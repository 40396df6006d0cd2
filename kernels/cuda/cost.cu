// Costs. A team computes the costs of one image; then a team for each column adds them, always in the same
// order.
#include <cmath>

#include "kernels/cost_math.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"
#include "kernels/cuda/sizes.h"
#include "kernels/functors.h"

namespace convnet::cuda {
namespace {

CONVNET_DEVICE inline bool is_finite(double v) { return v * 0 == 0; }

/// The costs of images: a column for every kind of cost, each with a row per image. Column 0 is 1 where
/// any value of the image is not finite, else 0.
struct CostTable {
  double* values;
  std::int64_t rows;

  CONVNET_HD double& at(int column, std::int64_t row) const { return values[column * rows + row]; }
};

/// Adds columns 1... to costs[slot...], and sets costs[0] where a row is not finite. A team per column.
struct AddColumns {
  CostTable table;
  std::int64_t slot;
  double* costs;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t row = team.rank(); row < table.rows; row += team.size())
      sum += table.at(static_cast<int>(column), row);
    sum = team.sum(sum);
    if (team.rank() != 0) return;
    if (column > 0)
      costs[slot + column - 1] += sum;
    else if (sum > 0)
      costs[0] = 1;
  }
};

struct LogregOfImage {
  std::int64_t c, topk;
  ClassTargetReader targets;
  const float* probs;
  CostTable table;
  static constexpr int kColumns = kLogregColumns;  ///< column 0, cost, errors, top-k errors

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t image) const {
    const float* p = probs + image * c;
    const ClassTarget target = targets.at(image);
    // Readers of data check labels. A wrong label, which only a defect can cause, makes the cost NaN.
    const bool valid = target.valid(c);
    const float label_prob = valid ? p[target.label()] : NAN;
    const bool one_class = target.first == target.second && target.spread == 0;
    std::int64_t above = 0, tied = 0, finite = 0;
    double cost = 0;
    for (std::int64_t i = team.rank(); i < c; i += team.size()) {
      above += p[i] > label_prob ? 1 : 0;
      tied += p[i] == label_prob ? 1 : 0;
      finite += p[i] - p[i] == 0 ? 1 : 0;
      if (!one_class) cost -= weighted_log(target.of(i), static_cast<double>(p[i]));
    }
    above = team.sum(above);
    tied = team.sum(tied);
    finite = team.sum(finite);
    cost = team.sum(cost);
    if (team.rank() != 0) return;
    const Ranking ranking{above, tied, finite == c};
    if (one_class || !valid) cost = -floored_log(static_cast<double>(label_prob));
    cost *= static_cast<double>(target.weight);
    table.at(0, image) = ranking.finite && is_finite(cost) ? 0 : 1;
    table.at(1, image) = cost;
    table.at(2, image) = expected_error(ranking, 1);
    table.at(3, image) = expected_error(ranking, topk);
  }
};

/// Class weights that travel with a launch.
struct ClassWeights {
  static constexpr std::int64_t kMost = 512;
  float weights[kMost];
};

/// Returns the reader of the targets of an operation whose labels are at `labels`. Brings class weights to
/// `memory` first, which has class_weight_bytes() for them.
ClassTargetReader target_reader(Stream stream, const ClassTargets& targets, std::int64_t classes,
                                const std::byte* labels, std::byte* memory) {
  const auto count = std::ssize(targets.class_weights);
  for (std::int64_t first = 0; first < count; first += ClassWeights::kMost) {
    ClassWeights some = {};
    const std::int64_t n = std::min(count - first, std::int64_t{ClassWeights::kMost});
    std::copy_n(targets.class_weights.begin() + first, n, some.weights);
    float* to = as_floats(memory) + first;
    for_each(stream, n, [=] CONVNET_DEVICE(std::int64_t i) { to[i] = some.weights[i]; });
  }
  return {reinterpret_cast<const std::int32_t*>(labels), count > 0 ? as_floats(memory) : nullptr, classes,
          targets.smoothing, targets.mixed};
}

/// The cost of an output p with label t.
struct Crossent {
  static constexpr bool kCountsWrong = false;
  CONVNET_DEVICE double operator()(double t, double p) const { return -weighted_log(t, p); }
};
struct BinaryCost {
  static constexpr bool kCountsWrong = true;  ///< counts outputs on the wrong side of 0.5
  double pos_weight;
  CONVNET_DEVICE double operator()(double t, double p) const {
    return -(weighted_log(pos_weight * t, p) + weighted_log(1 - t, 1 - p));
  }
};

/// Computes costs that have a label for every output.
template <class CostOf, class T>
struct CostOfImage {
  std::int64_t c;
  CostOf cost_of;
  const float* labels;
  const T* probs;
  CostTable table;
  /// Column 0, cost, [wrong outputs,] errors.
  static constexpr int kColumns = CostOf::kCountsWrong ? kBinaryCostColumns : kCrossentColumns;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t image) const {
    const float* t = labels + image * c;
    const T* stored = probs + image * c;
    double cost = 0;
    float best = -INFINITY, label = -INFINITY;
    std::int64_t finite = 0, wrong = 0;
    for (std::int64_t i = team.rank(); i < c; i += team.size()) {
      const float p = to_float(stored[i]);
      cost += cost_of(static_cast<double>(t[i]), static_cast<double>(p));
      best = p > best ? p : best;
      label = t[i] > label ? t[i] : label;
      finite += p - p == 0 ? 1 : 0;
      wrong += (t[i] > 0.5F) != (p > 0.5F) ? 1 : 0;
    }
    cost = team.sum(cost);
    best = team.max(best);
    label = team.max(label);
    finite = team.sum(finite);
    wrong = team.sum(wrong);
    // The chance that an output drawn from the most probable ones lacks the largest label.
    std::int64_t tied = 0, right = 0;
    for (std::int64_t i = team.rank(); i < c; i += team.size()) {
      const float p = to_float(stored[i]);
      tied += p == best ? 1 : 0;
      right += p == best && t[i] == label ? 1 : 0;
    }
    tied = team.sum(tied);
    right = team.sum(right);
    if (team.rank() != 0) return;
    const bool all_finite = finite == c && is_finite(cost);
    table.at(0, image) = all_finite ? 0 : 1;
    table.at(1, image) = cost;
    if constexpr (CostOf::kCountsWrong)
      table.at(2, image) = static_cast<double>(wrong) / static_cast<double>(c);
    table.at(kColumns - 1, image) =
        all_finite ? 1 - static_cast<double>(right) / static_cast<double>(tied) : 1;
  }
};

/// Adds, for every class, the outputs p > 0.5 that are right, all such outputs and all labels t > 0.5.
template <class T>
struct CountClass {
  std::int64_t n, c;
  const float* labels;
  const T* probs;
  double* counts;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    std::int64_t right = 0, outputs = 0, positive = 0;
    for (std::int64_t at = i; at < n * c; at += c) {
      const float p = to_float(probs[at]);
      right += p > 0.5F && labels[at] > 0.5F ? 1 : 0;
      outputs += p > 0.5F ? 1 : 0;
      positive += labels[at] > 0.5F ? 1 : 0;
    }
    counts[3 * i] += static_cast<double>(right);
    counts[3 * i + 1] += static_cast<double>(outputs);
    counts[3 * i + 2] += static_cast<double>(positive);
  }
};

/// A team adds a part of all values.
template <class T>
struct SquaresOfPart {
  std::int64_t count, part_size;
  const T* src;
  CostTable table;
  static constexpr int kColumns = kSquaresColumns;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t part) const {
    const std::int64_t end = (part + 1) * part_size < count ? (part + 1) * part_size : count;
    double sum = 0;
    for (std::int64_t i = part * part_size + team.rank(); i < end; i += team.size()) {
      const auto x = static_cast<double>(to_float(src[i]));
      sum += x * x;
    }
    sum = team.sum(sum);
    if (team.rank() != 0) return;
    table.at(0, part) = is_finite(sum) ? 0 : 1;
    table.at(1, part) = sum;
  }
};

/// The gradient of a multinomial cost of a softmax.
template <class T>
struct SoftmaxLogregGradient {
  ClassTargetReader targets;
  std::int64_t c;
  float coeff;
  const float* probs;
  T* diff;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const Quotient image = divide(i, c);
    const ClassTarget target = targets.at(image.value);
    diff[i] = stored_as<T>(coeff * target.weight * (probs[i] - target.of(image.rest)));
  }
};

/// The gradient of the cross entropy of a softmax, a team for every image.
template <class T>
struct SoftmaxCrossentGradient {
  std::int64_t c;
  float coeff;
  const float *labels, *probs;
  T* diff;
  CONVNET_DEVICE void operator()(const Team& team, std::int64_t image) const {
    const float *t = labels + image * c, *p = probs + image * c;
    double sum = 0;
    for (std::int64_t i = team.rank(); i < c; i += team.size()) sum += static_cast<double>(t[i]);
    const auto total = static_cast<float>(team.sum(sum));
    for (std::int64_t i = team.rank(); i < c; i += team.size())
      diff[image * c + i] = stored_as<T>(coeff * (p[i] * total - t[i]));
  }
};

/// The gradient of a binary cost of outputs of any layer.
template <class T>
struct BinaryGradient {
  float coeff, pos_weight;
  const float* labels;
  const T* probs;
  T* diff;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const float t = labels[i], p = to_float(probs[i]);
    diff[i] = stored_as<T>(coeff * ((1 - t) / floored(1 - p) - pos_weight * t / floored(p)));
  }
};

/// The gradient of a binary cost of a logistic, with respect to the input of the logistic.
template <class T>
struct LogisticGradient {
  float coeff, pos_weight;
  const float *labels, *probs;
  T* diff;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const float t = labels[i], p = probs[i];
    diff[i] = stored_as<T>(coeff * ((1 - t) * p - pos_weight * t * (1 - p)));
  }
};

/// diff = factor * src
template <class T>
struct SquaresGradient {
  float factor;
  const T* src;
  T* diff;
  CONVNET_DEVICE void operator()(std::int64_t i) const { diff[i] = stored_as<T>(factor * to_float(src[i])); }
};

}  // namespace

template <>
Prepared prepare(const LogregForward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [op](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const CostTable table{reinterpret_cast<double*>(workspace), op.n};
        const ClassTargetReader targets = target_reader(stream, op.targets, op.c, args[0],
                                                        workspace + cost_table_bytes(kLogregColumns, op.n));
        for_teams(stream, op.n, LogregOfImage{op.c, op.topk, targets, as_floats(args[1]), table});
        for_teams(stream, LogregOfImage::kColumns,
                  AddColumns{table, op.slot, reinterpret_cast<double*>(args[2])});
      });
}

template <>
Prepared prepare(const LogregBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [op](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const ClassTargetReader targets = target_reader(stream, op.targets, op.c, args[0], workspace);
        const float* probs = as_floats(args[1]);
        float* diff = as_floats(args[2]);
        const std::int64_t c = op.c;
        const float coeff = op.coeff;
        for_each(stream, op.n * c, [=] CONVNET_DEVICE(std::int64_t i) {
          const Quotient image = divide(i, c);
          const ClassTarget target = targets.at(image.value);
          const float t = target.of(image.rest);
          diff[i] = t == 0 ? 0.0F : -coeff * target.weight * t / floored(probs[i]);
        });
      });
}

template <>
Prepared prepare(const SoftmaxLogregBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [op, type = form.args.back().type](Stream stream, std::span<std::byte* const> args,
                                               std::byte* workspace) {
        const ClassTargetReader targets = target_reader(stream, op.targets, op.c, args[0], workspace);
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          for_each(stream, op.n * op.c,
                   SoftmaxLogregGradient<T>{targets, op.c, op.coeff, as_floats(args[1]),
                                            reinterpret_cast<T*>(args[2])});
        });
      });
}

template <>
Prepared prepare(const CrossentForward& op, const OpForm& form, const Context&) {
  using OfImage = CostOfImage<Crossent, float>;
  return std::make_shared<KernelOp>(
      form, [op](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const CostTable table{reinterpret_cast<double*>(workspace), op.n};
        for_teams(stream, op.n, OfImage{op.c, {}, as_floats(args[0]), as_floats(args[1]), table});
        for_teams(stream, OfImage::kColumns, AddColumns{table, op.slot, reinterpret_cast<double*>(args[2])});
      });
}

template <>
Prepared prepare(const CrossentBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
    const float *labels = as_floats(args[0]), *probs = as_floats(args[1]);
    float* diff = as_floats(args[2]);
    const float coeff = op.coeff;
    for_each(stream, op.n * op.c,
             [=] CONVNET_DEVICE(std::int64_t i) { diff[i] = -coeff * labels[i] / floored(probs[i]); });
  });
}

template <>
Prepared prepare(const SoftmaxCrossentBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [op, type = form.args.back().type](Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          for_teams(stream, op.n,
                    SoftmaxCrossentGradient<T>{op.c, op.coeff, as_floats(args[0]), as_floats(args[1]),
                                               reinterpret_cast<T*>(args[2])});
        });
      });
}

template <>
Prepared prepare(const BinaryCostForward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form,
      [op, type = form.args[1].type](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const CostTable table{reinterpret_cast<double*>(workspace), op.n};
        const float* labels = as_floats(args[0]);
        auto* costs = reinterpret_cast<double*>(args[2]);
        const BinaryCost cost{static_cast<double>(op.pos_weight)};
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          using OfImage = CostOfImage<BinaryCost, T>;
          const T* probs = reinterpret_cast<const T*>(args[1]);
          for_teams(stream, op.n, OfImage{op.c, cost, labels, probs, table});
          const int columns = op.per_class ? OfImage::kColumns - 1 : OfImage::kColumns;
          for_teams(stream, columns, AddColumns{table, op.slot, costs});
          if (op.per_class)
            for_each(stream, op.c, CountClass<T>{op.n, op.c, labels, probs, costs + op.slot + 2});
        });
      });
}

template <>
Prepared prepare(const BinaryCostBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [op, type = form.args.back().type](Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          for_each(stream, op.n * op.c,
                   BinaryGradient<T>{op.coeff, op.pos_weight, as_floats(args[0]),
                                     reinterpret_cast<const T*>(args[1]), reinterpret_cast<T*>(args[2])});
        });
      });
}

template <>
Prepared prepare(const LogisticBinaryCostBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [op, type = form.args.back().type](Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          for_each(stream, op.n * op.c,
                   LogisticGradient<T>{op.coeff, op.pos_weight, as_floats(args[0]), as_floats(args[1]),
                                       reinterpret_cast<T*>(args[2])});
        });
      });
}

template <>
Prepared prepare(const SquaresForward& op, const OpForm& form, const Context&) {
  const std::int64_t count = element_count(op.dims);
  const SquaresParts parts(count);
  return std::make_shared<KernelOp>(form, [=, slot = op.slot, type = form.args[0].type](
                                              Stream stream, std::span<std::byte* const> args,
                                              std::byte* workspace) {
    const CostTable table{reinterpret_cast<double*>(workspace), parts.count};
    with_stored_type(type, [&](auto stored) {
      using T = decltype(stored);
      using OfPart = SquaresOfPart<T>;
      for_teams(stream, parts.count, OfPart{count, parts.size, reinterpret_cast<const T*>(args[0]), table});
      for_teams(stream, OfPart::kColumns, AddColumns{table, slot, reinterpret_cast<double*>(args[1])});
    });
  });
}

template <>
Prepared prepare(const SquaresBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [factor = 2 * op.coeff, count = element_count(op.dims), type = form.args[0].type](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          for_each(
              stream, count,
              SquaresGradient<T>{factor, reinterpret_cast<const T*>(args[0]), reinterpret_cast<T*>(args[1])});
        });
      });
}

}  // namespace convnet::cuda
