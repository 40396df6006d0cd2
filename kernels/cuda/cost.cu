// Costs. A team computes the costs of one image; then a team for each column adds them, always in the same
// order.
#include <cmath>

#include "kernels/cost_math.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"
#include "kernels/cuda/sizes.h"

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
template <class CostOf>
struct CostOfImage {
  std::int64_t c;
  CostOf cost_of;
  const float *labels, *probs;
  CostTable table;
  /// Column 0, cost, [wrong outputs,] errors.
  static constexpr int kColumns = CostOf::kCountsWrong ? kBinaryCostColumns : kCrossentColumns;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t image) const {
    const float *t = labels + image * c, *p = probs + image * c;
    double cost = 0;
    float best = -INFINITY, label = -INFINITY;
    std::int64_t finite = 0, wrong = 0;
    for (std::int64_t i = team.rank(); i < c; i += team.size()) {
      cost += cost_of(static_cast<double>(t[i]), static_cast<double>(p[i]));
      best = p[i] > best ? p[i] : best;
      label = t[i] > label ? t[i] : label;
      finite += p[i] - p[i] == 0 ? 1 : 0;
      wrong += (t[i] > 0.5F) != (p[i] > 0.5F) ? 1 : 0;
    }
    cost = team.sum(cost);
    best = team.max(best);
    label = team.max(label);
    finite = team.sum(finite);
    wrong = team.sum(wrong);
    // The chance that an output drawn from the most probable ones lacks the largest label.
    std::int64_t tied = 0, right = 0;
    for (std::int64_t i = team.rank(); i < c; i += team.size()) {
      tied += p[i] == best ? 1 : 0;
      right += p[i] == best && t[i] == label ? 1 : 0;
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
struct CountClass {
  std::int64_t n, c;
  const float *labels, *probs;
  double* counts;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    std::int64_t right = 0, outputs = 0, positive = 0;
    for (std::int64_t at = i; at < n * c; at += c) {
      right += probs[at] > 0.5F && labels[at] > 0.5F ? 1 : 0;
      outputs += probs[at] > 0.5F ? 1 : 0;
      positive += labels[at] > 0.5F ? 1 : 0;
    }
    counts[3 * i] += static_cast<double>(right);
    counts[3 * i + 1] += static_cast<double>(outputs);
    counts[3 * i + 2] += static_cast<double>(positive);
  }
};

/// A team adds a part of all values.
struct SquaresOfPart {
  std::int64_t count, part_size;
  const float* src;
  CostTable table;
  static constexpr int kColumns = kSquaresColumns;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t part) const {
    const std::int64_t end = (part + 1) * part_size < count ? (part + 1) * part_size : count;
    double sum = 0;
    for (std::int64_t i = part * part_size + team.rank(); i < end; i += team.size()) {
      const auto x = static_cast<double>(src[i]);
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
  using OfImage = CostOfImage<Crossent>;
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
  return std::make_shared<KernelOp>(form, [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
    const float *all_labels = as_floats(args[0]), *all_probs = as_floats(args[1]);
    float* all_diff = as_floats(args[2]);
    const std::int64_t c = op.c;
    const float coeff = op.coeff;
    for_teams(stream, op.n, [=] CONVNET_DEVICE(const Team& team, std::int64_t image) {
      const float *labels = all_labels + image * c, *probs = all_probs + image * c;
      float* diff = all_diff + image * c;
      double sum = 0;
      for (std::int64_t i = team.rank(); i < c; i += team.size()) sum += static_cast<double>(labels[i]);
      const auto total = static_cast<float>(team.sum(sum));
      for (std::int64_t i = team.rank(); i < c; i += team.size())
        diff[i] = coeff * (probs[i] * total - labels[i]);
    });
  });
}

template <>
Prepared prepare(const BinaryCostForward& op, const OpForm& form, const Context&) {
  using OfImage = CostOfImage<BinaryCost>;
  return std::make_shared<KernelOp>(
      form, [op](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const CostTable table{reinterpret_cast<double*>(workspace), op.n};
        const float *labels = as_floats(args[0]), *probs = as_floats(args[1]);
        auto* costs = reinterpret_cast<double*>(args[2]);
        const BinaryCost cost{static_cast<double>(op.pos_weight)};
        for_teams(stream, op.n, OfImage{op.c, cost, labels, probs, table});
        const int columns = op.per_class ? OfImage::kColumns - 1 : OfImage::kColumns;
        for_teams(stream, columns, AddColumns{table, op.slot, costs});
        if (op.per_class) for_each(stream, op.c, CountClass{op.n, op.c, labels, probs, costs + op.slot + 2});
      });
}

template <>
Prepared prepare(const BinaryCostBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
    const float *labels = as_floats(args[0]), *probs = as_floats(args[1]);
    float* diff = as_floats(args[2]);
    const float coeff = op.coeff, pos_weight = op.pos_weight;
    for_each(stream, op.n * op.c, [=] CONVNET_DEVICE(std::int64_t i) {
      const float t = labels[i], p = probs[i];
      diff[i] = coeff * ((1 - t) / floored(1 - p) - pos_weight * t / floored(p));
    });
  });
}

template <>
Prepared prepare(const LogisticBinaryCostBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
    const float *labels = as_floats(args[0]), *probs = as_floats(args[1]);
    float* diff = as_floats(args[2]);
    const float coeff = op.coeff, pos_weight = op.pos_weight;
    for_each(stream, op.n * op.c, [=] CONVNET_DEVICE(std::int64_t i) {
      const float t = labels[i], p = probs[i];
      diff[i] = coeff * ((1 - t) * p - pos_weight * t * (1 - p));
    });
  });
}

template <>
Prepared prepare(const SquaresForward& op, const OpForm& form, const Context&) {
  const std::int64_t count = element_count(op.dims);
  const SquaresParts parts(count);
  return std::make_shared<KernelOp>(form, [=, slot = op.slot](Stream stream, std::span<std::byte* const> args,
                                                              std::byte* workspace) {
    const CostTable table{reinterpret_cast<double*>(workspace), parts.count};
    for_teams(stream, parts.count, SquaresOfPart{count, parts.size, as_floats(args[0]), table});
    for_teams(stream, SquaresOfPart::kColumns, AddColumns{table, slot, reinterpret_cast<double*>(args[1])});
  });
}

template <>
Prepared prepare(const SquaresBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [factor = 2 * op.coeff, count = element_count(op.dims)](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    const float* src = as_floats(args[0]);
    float* diff = as_floats(args[1]);
    for_each(stream, count, [=] CONVNET_DEVICE(std::int64_t i) { diff[i] = factor * src[i]; });
  });
}

}  // namespace convnet::cuda
