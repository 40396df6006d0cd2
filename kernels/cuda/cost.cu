// Costs. A team finds what one image costs, then one team adds a column of them, always in the same order.
#include <cmath>

#include "kernels/cost_math.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"

namespace convnet::cuda {
namespace {

CONVNET_DEVICE inline bool is_finite(double v) { return v * 0 == 0; }

/// The costs of images: a column for every kind of cost, each with a row per image. Column 0 is 1 where
/// something of the image is not finite, else 0.
struct CostTable {
  double* values;
  std::int64_t rows;

  CONVNET_HD double& at(int column, std::int64_t row) const { return values[column * rows + row]; }
  static std::int64_t bytes(int columns, std::int64_t rows) {
    return columns * rows * static_cast<std::int64_t>(sizeof(double));
  }
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
  const std::int32_t* labels;
  const float* probs;
  CostTable table;
  static constexpr int kColumns = 4;  // and: cost, errors, top-k errors

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t image) const {
    const float* p = probs + image * c;
    const std::int32_t label = labels[image];
    // Readers of data check labels; a wrong one, a bug of ours, breaks the cost.
    const float label_prob = label >= 0 && label < c ? p[label] : NAN;
    std::int64_t above = 0, tied = 0, finite = 0;
    for (std::int64_t i = team.rank(); i < c; i += team.size()) {
      above += p[i] > label_prob ? 1 : 0;
      tied += p[i] == label_prob ? 1 : 0;
      finite += p[i] - p[i] == 0 ? 1 : 0;
    }
    above = team.sum(above);
    tied = team.sum(tied);
    finite = team.sum(finite);
    if (team.rank() != 0) return;
    const Ranking ranking{above, tied, finite == c};
    const double log_prob = floored_log(static_cast<double>(label_prob));
    table.at(0, image) = ranking.finite && is_finite(log_prob) ? 0 : 1;
    table.at(1, image) = -log_prob;
    table.at(2, image) = expected_error(ranking, 1);
    table.at(3, image) = expected_error(ranking, topk);
  }
};

/// The cost of an output p with label t.
struct Crossent {
  static constexpr bool kCountsWrong = false;
  CONVNET_DEVICE double operator()(double t, double p) const { return -weighted_log(t, p); }
};
struct BinaryCost {
  static constexpr bool kCountsWrong = true;  ///< outputs on the wrong side of 0.5
  double pos_weight;
  CONVNET_DEVICE double operator()(double t, double p) const {
    return -(weighted_log(pos_weight * t, p) + weighted_log(1 - t, 1 - p));
  }
};

/// The cost of an image with a label for every output.
template <class CostOf>
struct CostOfImage {
  std::int64_t c;
  CostOf cost_of;
  const float *labels, *probs;
  CostTable table;
  static constexpr int kColumns = CostOf::kCountsWrong ? 4 : 3;  // and: cost, [wrong outputs,] errors

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
  static constexpr int kColumns = 2;

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

}  // namespace

template <>
Prepared prepare(const LogregForward& op, const LayoutHints&, const Context&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op),
      [op](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const CostTable table{reinterpret_cast<double*>(workspace), op.n};
        const auto* labels = reinterpret_cast<const std::int32_t*>(args[0]);
        for_teams(stream, op.n, LogregOfImage{op.c, op.topk, labels, as_floats(args[1]), table});
        for_teams(stream, LogregOfImage::kColumns,
                  AddColumns{table, op.slot, reinterpret_cast<double*>(args[2])});
      },
      CostTable::bytes(LogregOfImage::kColumns, op.n));
}

template <>
Prepared prepare(const LogregBackward& op, const LayoutHints&, const Context&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op), [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
        const auto* labels = reinterpret_cast<const std::int32_t*>(args[0]);
        const float* probs = as_floats(args[1]);
        float* diff = as_floats(args[2]);
        const std::int64_t c = op.c;
        const float coeff = op.coeff, floor = smallest_divisor();
        for_each(stream, op.n * c, [=] CONVNET_DEVICE(std::int64_t i) {
          const Quotient image = divide(i, c);
          diff[i] = image.rest == labels[image.value] ? -coeff / floored(probs[i], floor) : 0.0F;
        });
      });
}

template <>
Prepared prepare(const SoftmaxLogregBackward& op, const LayoutHints&, const Context&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op), [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
        const auto* labels = reinterpret_cast<const std::int32_t*>(args[0]);
        const float* probs = as_floats(args[1]);
        float* diff = as_floats(args[2]);
        const std::int64_t c = op.c;
        const float coeff = op.coeff;
        for_each(stream, op.n * c, [=] CONVNET_DEVICE(std::int64_t i) {
          const Quotient image = divide(i, c);
          diff[i] = coeff * (image.rest == labels[image.value] ? probs[i] - 1 : probs[i]);
        });
      });
}

template <>
Prepared prepare(const CrossentForward& op, const LayoutHints&, const Context&) {
  using OfImage = CostOfImage<Crossent>;
  return std::make_shared<KernelOp>(
      argument_tensors(op),
      [op](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const CostTable table{reinterpret_cast<double*>(workspace), op.n};
        for_teams(stream, op.n, OfImage{op.c, {}, as_floats(args[0]), as_floats(args[1]), table});
        for_teams(stream, OfImage::kColumns, AddColumns{table, op.slot, reinterpret_cast<double*>(args[2])});
      },
      CostTable::bytes(OfImage::kColumns, op.n));
}

template <>
Prepared prepare(const CrossentBackward& op, const LayoutHints&, const Context&) {
  return std::make_shared<KernelOp>(argument_tensors(op),
                                    [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
                                      const float *labels = as_floats(args[0]), *probs = as_floats(args[1]);
                                      float* diff = as_floats(args[2]);
                                      const float coeff = op.coeff, floor = smallest_divisor();
                                      for_each(stream, op.n * op.c, [=] CONVNET_DEVICE(std::int64_t i) {
                                        diff[i] = -coeff * labels[i] / floored(probs[i], floor);
                                      });
                                    });
}

template <>
Prepared prepare(const SoftmaxCrossentBackward& op, const LayoutHints&, const Context&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op), [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
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
Prepared prepare(const BinaryCostForward& op, const LayoutHints&, const Context&) {
  using OfImage = CostOfImage<BinaryCost>;
  return std::make_shared<KernelOp>(
      argument_tensors(op),
      [op](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const CostTable table{reinterpret_cast<double*>(workspace), op.n};
        const float *labels = as_floats(args[0]), *probs = as_floats(args[1]);
        auto* costs = reinterpret_cast<double*>(args[2]);
        const BinaryCost cost{static_cast<double>(op.pos_weight)};
        for_teams(stream, op.n, OfImage{op.c, cost, labels, probs, table});
        const int columns = op.per_class ? OfImage::kColumns - 1 : OfImage::kColumns;
        for_teams(stream, columns, AddColumns{table, op.slot, costs});
        if (op.per_class) for_each(stream, op.c, CountClass{op.n, op.c, labels, probs, costs + op.slot + 2});
      },
      CostTable::bytes(OfImage::kColumns, op.n));
}

template <>
Prepared prepare(const BinaryCostBackward& op, const LayoutHints&, const Context&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op), [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float *labels = as_floats(args[0]), *probs = as_floats(args[1]);
        float* diff = as_floats(args[2]);
        const float coeff = op.coeff, pos_weight = op.pos_weight, floor = smallest_divisor();
        for_each(stream, op.n * op.c, [=] CONVNET_DEVICE(std::int64_t i) {
          const float t = labels[i], p = probs[i];
          diff[i] = coeff * ((1 - t) / floored(1 - p, floor) - pos_weight * t / floored(p, floor));
        });
      });
}

template <>
Prepared prepare(const LogisticBinaryCostBackward& op, const LayoutHints&, const Context&) {
  return std::make_shared<KernelOp>(argument_tensors(op),
                                    [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
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
Prepared prepare(const SquaresForward& op, const LayoutHints& hints, const Context&) {
  const TensorDesc tensor = hinted_or_preferred(op.dims, hints, 0);
  constexpr std::int64_t kSmallestPart = 4096, kMostParts = 1024;
  const std::int64_t count = element_count(op.dims);
  const std::int64_t spread = (count + kMostParts - 1) / kMostParts;
  const std::int64_t part_size = spread < kSmallestPart ? kSmallestPart : spread;
  const std::int64_t parts = (count + part_size - 1) / part_size;
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor.layout),
      [=, slot = op.slot](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const CostTable table{reinterpret_cast<double*>(workspace), parts};
        for_teams(stream, parts, SquaresOfPart{count, part_size, as_floats(args[0]), table});
        for_teams(stream, SquaresOfPart::kColumns,
                  AddColumns{table, slot, reinterpret_cast<double*>(args[1])});
      },
      CostTable::bytes(SquaresOfPart::kColumns, parts));
}

template <>
Prepared prepare(const SquaresBackward& op, const LayoutHints& hints, const Context&) {
  const TensorDesc tensor = hinted_or_preferred(op.dims, hints, 0);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor.layout), [factor = 2 * op.coeff, count = element_count(op.dims)](
                                               Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float* src = as_floats(args[0]);
        float* diff = as_floats(args[1]);
        for_each(stream, count, [=] CONVNET_DEVICE(std::int64_t i) { diff[i] = factor * src[i]; });
      });
}

}  // namespace convnet::cuda
