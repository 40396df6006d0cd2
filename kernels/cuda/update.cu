// Updates of weights, the flag that stops them, and the constraints after them.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"
#include "kernels/cuda/ranges.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/sources.h"
#include "kernels/update_math.h"

namespace convnet::cuda {
namespace {

CONVNET_DEVICE inline const Rates& rates_at(const std::byte* step, std::int64_t index) {
  return reinterpret_cast<const Rates*>(step + sizeof(StepHeader))[index];
}

CONVNET_DEVICE inline bool is_finite(float v) { return v * 0 == 0; }

/// The parts of an update that are made in one launch. A thread updates kLanes consecutive weights, so that
/// it finds their part and the factors only once, and reads kLoadBytes at a time.
struct Steps {
  struct Part {
    float *weights, *increment, *accumulator, *squares;  ///< the last two may be null
    std::byte* rounded;  ///< where the weights are also stored as bf16; null: nowhere
    const float* sum;  ///< sum of the accumulator and the gradients of earlier launches; null: there are none
    std::int64_t count;
    int scale_index;  ///< index of a pair of `scales`; -1: the part is not scaled
    int rate_index;
    float images;
    short first_gradient, end_gradient;
    UpdateRule rule;
    bool aligned;            ///< whether vectors of kLanes can be read from all of its memory
    bool rounded_gradients;  ///< the gradients are bf16
  };

  bool fits(int more_gradients) const {
    return !ranges.full() && gradient_count + more_gradients <= kMostGradients;
  }
  /// Adds a part of which the first `summed` gradients are already summed in `sum`.
  void add(const Update::Part& from, std::span<std::byte* const> args, const float* sum, int summed) {
    Part& part = parts[part_count++];
    part.weights = as_floats(args[0]);
    part.increment = as_floats(args[1]);
    part.accumulator = from.accumulates ? as_floats(args[from.accumulator()]) : nullptr;
    part.squares = keeps_squares(from.rule) ? as_floats(args[from.squares()]) : nullptr;
    part.rounded = from.rounds ? args[from.rounded()] : nullptr;
    part.sum = sum;
    part.count = from.count;
    part.scale_index = static_cast<int>(from.scale_index);
    part.rate_index = static_cast<int>(from.rate_index);
    part.images = static_cast<float>(from.images);
    part.rule = from.rule;
    part.first_gradient = static_cast<short>(gradient_count);
    for (int g = summed; g < from.gradients; ++g)
      gradients[gradient_count++] = args[2 + static_cast<std::size_t>(g)];
    part.end_gradient = static_cast<short>(gradient_count);
    part.rounded_gradients = from.gradient_type == DataType::bf16;
    part.aligned = is_aligned(sum) && std::all_of(args.begin(), args.end(),
                                                  [](const std::byte* arg) { return is_aligned(arg); });
    ranges.add((from.count + kLanes - 1) / kLanes);
  }

  /// Updates the weights of vector `i` of all parts and returns whether they and their squares are finite
  /// after it.
  CONVNET_DEVICE bool step(const std::byte* step_block, std::int64_t i) const {
    const Ranges::Place at = ranges.find(i);
    const Part& part = parts[at.range];
    const Rates& rates = rates_at(step_block, part.rate_index);
    const std::int64_t begin = at.index * kLanes;
    if (part.aligned && begin + kLanes <= part.count) return step<kLanes>(part, rates, at.index);
    bool finite = true;
    CONVNET_UNROLL_BY(1)
    for (std::int64_t k = begin; k < begin + kLanes && k < part.count; ++k)
      finite = step<1>(part, rates, k) && finite;
    return finite;
  }

  Ranges ranges;  ///< vectors of each part
  Part parts[Ranges::kMost];
  std::byte* gradients[kMostGradients];  ///< gradients of all parts, which are only read
  const float* scales = nullptr;         ///< pairs that UpdateScales wrote; null: there are none
  int part_count = 0, gradient_count = 0;

 private:
  template <int Lanes>
  CONVNET_DEVICE static Vector<float, Lanes>& vector(float* memory, std::int64_t i) {
    return reinterpret_cast<Vector<float, Lanes>*>(memory)[i];
  }
  template <int Lanes>
  CONVNET_DEVICE static Vector<float, Lanes> vector(const float* memory, std::int64_t i) {
    return reinterpret_cast<const Vector<float, Lanes>*>(memory)[i];
  }

  template <int Lanes>
  CONVNET_DEVICE bool step(const Part& part, const Rates& rates, std::int64_t i) const {
    float* accumulator = part.accumulator;
    const auto of_replica = [&](int g) {
      return part.rounded_gradients ? Numbers<BFloat16, Lanes>(gradients[g])[i]
                                    : Numbers<float, Lanes>(gradients[g])[i];
    };
    // Starts from the accumulator, so that the order of summation is fixed.
    int g = part.first_gradient;
    const float* first = part.sum != nullptr ? part.sum : accumulator;
    Vector<float, Lanes> gradient = first != nullptr ? vector<Lanes>(first, i) : of_replica(g++);
    CONVNET_UNROLL_BY(1)
    for (; g < part.end_gradient; ++g) {
      const Vector<float, Lanes> more = of_replica(g);
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane) gradient.lane[lane] += more.lane[lane];
    }
    const float images = accumulator != nullptr ? rates.images : part.images;
    const bool due = images > 0;
    if (accumulator != nullptr) vector<Lanes>(accumulator, i) = due ? Vector<float, Lanes>{} : gradient;
    if (!due) return true;
    const float* pair = part.scale_index < 0 ? nullptr : scales + 2 * part.scale_index;
    const UpdateFactors factors(rates, part.rule, images, pair);
    switch (part.rule) {
      case UpdateRule::adamw: return apply<UpdateRule::adamw, Lanes>(part, factors, gradient, i);
      case UpdateRule::rmsprop: return apply<UpdateRule::rmsprop, Lanes>(part, factors, gradient, i);
      case UpdateRule::nesterov: return apply<UpdateRule::nesterov, Lanes>(part, factors, gradient, i);
      default: return apply<UpdateRule::momentum, Lanes>(part, factors, gradient, i);
    }
  }

  template <UpdateRule rule, int Lanes>
  CONVNET_DEVICE static bool apply(const Part& part, const UpdateFactors& factors,
                                   const Vector<float, Lanes>& gradient, std::int64_t i) {
    constexpr bool has_squares = keeps_squares(rule);
    Vector<float, Lanes> weights = vector<Lanes>(part.weights, i);
    Vector<float, Lanes> increment = vector<Lanes>(part.increment, i);
    Vector<float, Lanes> squares{};
    if constexpr (has_squares) squares = vector<Lanes>(part.squares, i);
    bool finite = true;
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) {
      float& weight = weights.lane[lane];
      weight = updated<rule>(factors, weight, gradient.lane[lane], increment.lane[lane], squares.lane[lane]);
      finite = is_finite(weight) && finite;
      if constexpr (has_squares) finite = is_finite(squares.lane[lane]) && finite;
    }
    vector<Lanes>(part.weights, i) = weights;
    if (part.rounded != nullptr) Numbers<BFloat16, Lanes>(part.rounded).set(i, weights);
    vector<Lanes>(part.increment, i) = increment;
    if constexpr (has_squares) vector<Lanes>(part.squares, i) = squares;
    return finite;
  }
};

/// sum = start + the gradients, in their order.
template <class T>
struct SumGradients {
  Sources<const T> gradients;
  const float* start;  ///< null: the sum starts from the first gradient
  float* sum;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    int g = 0;
    float total = start != nullptr ? start[i] : to_float(gradients.from[g++][i]);
    for (; g < gradients.count; ++g) total += to_float(gradients.from[g][i]);
    sum[i] = total;
  }
};

/// Sums the first gradients of a part, after its accumulator if it has one, until not more than
/// kMostGradients are left, in the order in which one launch would add them. Returns the number of gradients
/// summed.
int sum_first_gradients(Stream stream, const Update::Part& part, std::span<std::byte* const> args,
                        float* sum) {
  int summed = 0;
  while (part.gradients - summed > kMostGradients) {
    const float* start = summed > 0 ? sum : part.accumulates ? as_floats(args[part.accumulator()]) : nullptr;
    with_stored_type(part.gradient_type, [&](auto stored) {
      SumGradients<decltype(stored)> sums{{}, start, sum};
      for (; sums.gradients.count < kMostSources; ++summed)
        sums.gradients.add(args[2 + static_cast<std::size_t>(summed)]);
      for_each(stream, part.count, sums);
    });
  }
  return summed;
}

/// The parameters that the kernel of a constraint needs.
struct Row {
  std::int64_t outer, groups, inner, rate_index;
  double norm_min, norm_max, ball;
  bool shrink;
};

}  // namespace

template <>
Prepared prepare(const Update& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [parts = op.parts, scaled = op.scales > 0](Stream stream, std::span<std::byte* const> args,
                                                       std::byte* workspace) {
        float* sums = as_floats(workspace);
        const float* scales = scaled ? as_floats(args[args.size() - 4]) : nullptr;
        const std::byte* step_block = args[args.size() - 3];
        const auto* non_finite = reinterpret_cast<const double*>(args[args.size() - 2]);
        auto* costs = reinterpret_cast<double*>(args[args.size() - 1]);
        for (auto part = parts.begin(); part != parts.end();) {
          Steps steps;
          steps.scales = scales;
          for (; part != parts.end() && steps.fits(std::min(part->gradients, int{kMostGradients})); ++part) {
            const std::size_t count = part->arguments();
            if (part->images > 0) {
              const bool many = part->gradients > kMostGradients;
              const int summed = many ? sum_first_gradients(stream, *part, args.first(count), sums) : 0;
              steps.add(*part, args.first(count), many ? sums : nullptr, summed);
              if (many) sums += part->count;
            }
            args = args.subspan(count);
          }
          for_each(stream, steps.ranges.total(), [=] CONVNET_DEVICE(std::int64_t i) {
            // All threads that write it write the same value. On one device `non_finite` and `costs` are the
            // same memory, so a weight that is not finite stops the update of some others; the run ends after
            // this step anyway.
            if (non_finite[0] == 0 && !steps.step(step_block, i)) costs[0] = 1;
          });
        }
      });
}

namespace {

/// Sums the squares of the pieces of some rows: of the weights and the gradients of parts.
struct SquaresOfPieces {
  struct Row {
    const std::byte* values;
    bool rounded;       ///< the values are bf16
    const float* more;  ///< numbers that are added to the values; may be null
    std::int64_t count;

    CONVNET_DEVICE float value(std::int64_t i) const {
      return rounded ? to_float(reinterpret_cast<const BFloat16*>(values)[i])
                     : reinterpret_cast<const float*>(values)[i];
    }
  };

  void add(const Row& row) {
    rows[pieces.count()] = row;
    pieces.add(squares_pieces(row.count));
  }

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t i) const {
    const Ranges::Place at = pieces.find(i);
    const Row& row = rows[at.range];
    const std::int64_t begin = at.index * kSquaresPiece;
    const std::int64_t end = begin + kSquaresPiece < row.count ? begin + kSquaresPiece : row.count;
    double sum = 0;
    for (std::int64_t k = begin + team.rank(); k < end; k += team.size()) {
      const double value = row.more != nullptr ? row.more[k] + row.value(k) : row.value(k);
      sum += value * value;
    }
    sum = team.sum(sum);
    if (team.rank() == 0) sums[i] = sum;
  }

  Ranges pieces;
  Row rows[Ranges::kMost];
  double* sums;
};

/// Adds up the sums of the pieces of each row.
struct SquaresOfRows {
  Ranges pieces;
  const double* sums;
  double* squares;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t row) const {
    double sum = 0;
    for (std::int64_t i = pieces.begin(row) + team.rank(); i < pieces.end(row); i += team.size())
      sum += sums[i];
    sum = team.sum(sum);
    if (team.rank() == 0) squares[row] = sum;
  }
};

/// Parts of UpdateScales that travel with a launch.
struct ScaledParts {
  static constexpr int kMost = 64;
  ScaledPart parts[kMost];
  int count = 0;
};

/// Stores what each part adds to the sums: the squares of its weights, those of its mean gradient, and the
/// number of its matrix.
struct ScaleTerms {
  ScaledParts group;
  const std::byte* step;
  double* terms;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    ScaledPart part = group.parts[i];
    terms[3 * i + 2] = static_cast<double>(part.matrix);
    double total = 0, of_matrix[2] = {0, 0};
    part.matrix = 0;
    part.add(rates_at(step, part.rate_index), &total, of_matrix);
    terms[3 * i] = of_matrix[0];
    terms[3 * i + 1] = of_matrix[1];
  }
};

/// Adds up the terms of all parts, and for each part of the group those of its matrix, and writes its
/// factors.
struct ScaleFactors {
  ScaledParts group;
  const std::byte* step;
  const double* terms;
  std::int64_t all;
  float* scales;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t /*i*/) const {
    double total = 0;
    for (std::int64_t k = team.rank(); k < all; k += team.size()) total += terms[3 * k + 1];
    total = team.sum(total);
    const float clip_norm = reinterpret_cast<const StepHeader*>(step)->clip_norm;
    for (int i = team.rank(); i < group.count; i += team.size()) {
      ScaledPart part = group.parts[i];
      const auto matrix = static_cast<double>(part.matrix);
      double of_matrix[2] = {0, 0};
      CONVNET_UNROLL_BY(4)
      for (std::int64_t k = 0; k < all; ++k) {
        const bool own = terms[3 * k + 2] == matrix;
        of_matrix[0] += own ? terms[3 * k] : 0;
        of_matrix[1] += own ? terms[3 * k + 1] : 0;
      }
      part.matrix = 0;
      part.write(rates_at(step, part.rate_index), clip_norm, &total, of_matrix, scales + 2 * i);
    }
  }
};

/// Finds out whether any of several devices has a cost that is not finite.
struct AnyOfDevices {
  Sources<double> costs;
  bool goes_on;
  double* non_finite;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t /*i*/) const {
    float any = goes_on && non_finite[0] != 0 ? 1 : 0;
    for (int k = team.rank(); k < costs.count; k += team.size()) any = costs.from[k][0] != 0 ? 1 : any;
    any = team.max(any);
    if (team.rank() == 0) non_finite[0] = any;
  }
};

}  // namespace

template <>
Prepared prepare(const UpdateSquares& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [parts = op.parts](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        auto* sums = reinterpret_cast<double*>(workspace);
        auto* squares = reinterpret_cast<double*>(args.back());
        for (auto part = parts.begin(); part != parts.end();) {
          SquaresOfPieces group;
          group.sums = sums;
          for (; part != parts.end() && !group.pieces.full(); ++part) {
            group.add({args[0], false, nullptr, part->count});
            group.add({args[1], part->gradient_type == DataType::bf16,
                       part->accumulates ? as_floats(args[2]) : nullptr, part->count});
            args = args.subspan(part->accumulates ? 3 : 2);
          }
          for_teams(stream, group.pieces.total(), group);
          for_teams(stream, group.pieces.count(), SquaresOfRows{group.pieces, sums, squares});
          sums += group.pieces.total();
          squares += group.pieces.count();
        }
      });
}

template <>
Prepared prepare(const UpdateScales& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [op](Stream stream, std::span<std::byte* const> args,
                                               std::byte* workspace) {
    const std::byte* step = args[args.size() - 2];
    float* scales = as_floats(args.back());
    auto* terms = reinterpret_cast<double*>(workspace);
    std::vector<ScaledParts> groups;
    std::size_t next = 0;
    for (std::size_t source = 0; source < op.sources.size(); ++source) {
      for (std::int64_t i = 0; i < op.sources[source]; ++i) {
        const UpdateScales::Part& part = op.parts[next++];
        if (groups.empty() || groups.back().count == ScaledParts::kMost) groups.emplace_back();
        ScaledParts& group = groups.back();
        group.parts[group.count++] = {reinterpret_cast<const double*>(args[source]) + 2 * i, part.rate_index,
                                      static_cast<float>(part.images), part.matrix, part.accumulates};
      }
    }
    std::int64_t first = 0;
    for (const ScaledParts& group : groups) {
      for_each(stream, group.count, ScaleTerms{group, step, terms + 3 * first});
      first += group.count;
    }
    for (const ScaledParts& group : groups) {
      for_teams(stream, 1, ScaleFactors{group, step, terms, first, scales});
      scales += 2 * group.count;
    }
  });
}

namespace {

/// The averages that are moved in one launch.
struct Averages {
  const float* weights[Ranges::kMost];
  float* averages[Ranges::kMost];
  bool aligned[Ranges::kMost];
  const std::byte* step_block;

  template <int Lanes>
  CONVNET_DEVICE void at(int part, std::int64_t i) const {
    using Values = Vector<float, Lanes>;
    const float share = reinterpret_cast<const StepHeader*>(step_block)->average_share;
    const Values newest = reinterpret_cast<const Values*>(weights[part])[i];
    Values& average = reinterpret_cast<Values*>(averages[part])[i];
    Values moved = average;
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane)
      moved.lane[lane] = averaged(moved.lane[lane], newest.lane[lane], share);
    average = moved;
  }
};

}  // namespace

template <>
Prepared prepare(const Average& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [counts = op.counts](Stream stream, std::span<std::byte* const> args, std::byte*) {
        const std::byte* step_block = args.back();
        for (auto count = counts.begin(); count != counts.end();) {
          OverRuns<Averages> work;
          work.runs.step_block = step_block;
          for (; count != counts.end() && !work.pieces.full(); ++count) {
            const int part = work.pieces.count();
            work.runs.weights[part] = as_floats(args[0]);
            work.runs.averages[part] = as_floats(args[1]);
            work.runs.aligned[part] = is_aligned(args[0]) && is_aligned(args[1]);
            work.pieces.add(*count);
            args = args.subspan(2);
          }
          for_teams(stream, work.pieces.total(), work);
        }
      });
}

template <>
Prepared prepare(const AnyNonFinite&, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [](Stream stream, std::span<std::byte* const> args, std::byte*) {
    auto* non_finite = reinterpret_cast<double*>(args.back());
    const std::size_t devices = args.size() - 1;
    for (std::size_t device = 0; device < devices;) {
      const bool goes_on = device > 0;
      Sources<double> costs;
      for (; device < devices && costs.count < kMostSources; ++device) costs.add(args[device]);
      for_teams(stream, 1, AnyOfDevices{costs, goes_on, non_finite});
    }
  });
}

template <>
Prepared prepare(const Constrain& op, const OpForm& form, const Context&) {
  const View view = view_of(form.args[0]);
  return std::make_shared<KernelOp>(
      form, [op, view](Stream stream, std::span<std::byte* const> args, std::byte*) {
        float* weights = as_floats(args[0]);
        const std::byte* step_block = op.when_due ? args[1] : nullptr;
        const Row row{op.outer,
                      op.groups,
                      op.inner,
                      op.rate_index,
                      static_cast<double>(op.norm_min),
                      static_cast<double>(op.norm_max),
                      static_cast<double>(op.ball),
                      op.shrink};
        for_teams(stream, op.groups, [=] CONVNET_DEVICE(const Team& team, std::int64_t group) {
          if (step_block != nullptr && rates_at(step_block, row.rate_index).images == 0) return;
          const std::int64_t count = row.outer * row.inner;
          // The position of the row's j-th weight, from its canonical index.
          const auto at = [&](std::int64_t j) {
            const Quotient part = divide(j, row.inner);
            const std::int64_t canonical = (part.value * row.groups + group) * row.inner + part.rest;
            if (!view.last) return canonical;
            const Quotient plane = divide(canonical, view.spatial());
            const Quotient image = divide(plane.value, view.c);
            return view.index(image.value, image.rest, plane.rest);
          };
          const auto squares = [&](double from) {
            double sum = 0;
            for (std::int64_t j = team.rank(); j < count; j += team.size()) {
              const double d = static_cast<double>(weights[at(j)]) - from;
              sum += d * d;
            }
            return team.sum(sum);
          };
          const auto scale = [&](double factor) {
            for (std::int64_t j = team.rank(); j < count; j += team.size()) {
              float& w = weights[at(j)];
              w = static_cast<float>(static_cast<double>(w) * factor);
            }
          };
          if (row.norm_max > 0) {
            double sum = 0;
            for (std::int64_t j = team.rank(); j < count; j += team.size())
              sum += static_cast<double>(weights[at(j)]);
            const double mean = team.sum(sum) / static_cast<double>(count);
            const double deviation = std::sqrt(squares(mean)) / static_cast<double>(count);
            double wanted = deviation < row.norm_max ? deviation : row.norm_max;
            wanted = wanted > row.norm_min ? wanted : row.norm_min;
            // Equal weights have no deviation, however scaled.
            if (deviation > 0 && wanted != deviation) scale(wanted / deviation);
          }
          if (row.ball > 0) {
            const double norm = std::sqrt(squares(0));
            if (norm > 0 && !(row.shrink && norm <= row.ball)) scale(row.ball / norm);
          }
        });
      });
}

}  // namespace convnet::cuda
