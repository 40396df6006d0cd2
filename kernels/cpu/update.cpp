// Updates of weights, and the flag that stops them.
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cpu/own_kernel.h"
#include "kernels/update_math.h"

namespace convnet::cpu::own {

namespace {

/// A piece of the weights of a part, with their increments and squares.
struct Kept {
  float *weights, *increment, *squares;  ///< `squares` is null unless the rule keeps them
};

/// Updates `count` weights and returns whether all, and their squares, are finite afterwards. This is a
/// function, not a lambda, because compilers do not vectorise loops over captured pointers well.
template <UpdateRule rule>
bool update_piece(const UpdateFactors& factors, float* __restrict weights, float* __restrict increment,
                  float* __restrict squares, const float* __restrict gradient, std::int64_t count) {
  float poison = 0;  // NaN as soon as one weight or square is NaN or infinite
  const UpdateFactors f = factors;
#pragma omp simd reduction(+ : poison)
  for (std::int64_t i = 0; i < count; ++i) {
    float change = increment[i], square = 0;
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): rules that keep squares have some
    if constexpr (keeps_squares(rule)) square = squares[i];
    const float weight = updated<rule>(f, weights[i], gradient[i], change, square);
    increment[i] = change;
    weights[i] = weight;
    poison += weight * 0;
    if constexpr (keeps_squares(rule)) {
      squares[i] = square;
      poison += square * 0;
    }
  }
  return poison == 0;
}

bool update_piece(UpdateRule rule, const UpdateFactors& f, const Kept& kept, const float* gradient,
                  std::int64_t count) {
  switch (rule) {
    case UpdateRule::nesterov:
      return update_piece<UpdateRule::nesterov>(f, kept.weights, kept.increment, nullptr, gradient, count);
    case UpdateRule::adamw:
      return update_piece<UpdateRule::adamw>(f, kept.weights, kept.increment, kept.squares, gradient, count);
    case UpdateRule::rmsprop:
      return update_piece<UpdateRule::rmsprop>(f, kept.weights, kept.increment, kept.squares, gradient,
                                               count);
    default:
      return update_piece<UpdateRule::momentum>(f, kept.weights, kept.increment, nullptr, gradient, count);
  }
}

/// dst[i] = src[i]. It is a function for the same reason as update_piece().
void widen_bf16(const BFloat16* __restrict src, std::int64_t count, float* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = to_float(src[i]);
}

Rates rates_at(const std::byte* step_block, std::int64_t index) {
  Rates rates;
  std::memcpy(&rates, step_block + step_block_bytes(index), sizeof rates);
  return rates;
}

StepHeader header_of(const std::byte* step_block) {
  StepHeader header;
  std::memcpy(&header, step_block, sizeof header);
  return header;
}

bool is_set(const std::byte* flag) {
  double value = 0;
  std::memcpy(&value, flag, sizeof value);
  return value != 0;
}

void set_flag(std::byte* flag, bool is) {
  const double value = is ? 1 : 0;
  std::memcpy(flag, &value, sizeof value);
}

/// Updates one part. `args` are the arguments of the part, `scales` the factors from UpdateScales or null.
/// Returns whether all weights and squares are finite afterwards.
bool update_part(const Update::Part& part, std::span<std::byte* const> args, const float* scales,
                 const std::byte* step_block) {
  const auto gradients = static_cast<std::size_t>(part.gradients);
  const Rates rates = rates_at(step_block, part.rate_index);
  const float images = part.accumulates ? rates.images : static_cast<float>(part.images);
  const bool due = images > 0;
  const UpdateFactors factors(rates, part.rule, due ? images : 1,
                              part.scale_index < 0 ? nullptr : scales + 2 * part.scale_index);
  std::atomic<bool> finite = true;
  for_pieces(part.count, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t n = end - begin;
    const bool rounded = part.gradient_type == DataType::bf16;
    const float* gradient = rounded ? nullptr : as_floats(args[2]) + begin;
    std::array<float, kPieceElements> sum;
    if (part.accumulates || gradients > 1 || rounded) {
      // Starts from the accumulator, if there is one, so that the order of summation is fixed.
      std::size_t next = 2;
      if (part.accumulates)
        std::copy_n(as_floats(args[part.accumulator()]) + begin, n, sum.data());
      else if (rounded)
        widen_bf16(as<BFloat16>(args[next++]) + begin, n, sum.data());
      else
        std::copy_n(as_floats(args[next++]) + begin, n, sum.data());
      for (; next < 2 + gradients; ++next) {
        if (rounded)
          add_scaled(as<BFloat16>(args[next]) + begin, 1, n, sum.data());
        else
          add_scaled(as_floats(args[next]) + begin, 1, n, sum.data());
      }
      gradient = sum.data();
    }
    if (part.accumulates) {
      float* accumulator = as_floats(args[part.accumulator()]) + begin;
      if (due)
        std::fill_n(accumulator, n, 0.0F);
      else
        std::copy_n(sum.data(), n, accumulator);
    }
    const Kept kept{as_floats(args[0]) + begin, as_floats(args[1]) + begin,
                    keeps_squares(part.rule) ? as_floats(args[part.squares()]) + begin : nullptr};
    if (!due) return;
    if (!update_piece(part.rule, factors, kept, gradient, n)) finite = false;
    if (part.rounds) round_to_bf16(kept.weights, n, as<BFloat16>(args[part.rounded()]) + begin);
  });
  return finite;
}

/// Returns the sum of squares of `values`, to which `more` is added if it is not null, in a fixed order.
template <class T>
double squares_of(const T* values, const float* more, std::int64_t count) {
  std::vector<double> pieces(static_cast<std::size_t>((count + kPieceElements - 1) / kPieceElements));
  for_pieces(count, [&](std::int64_t begin, std::int64_t end) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = begin; i < end; ++i) {
      const float stored = to_float(values[i]);
      const double value = more == nullptr ? stored : more[i] + stored;
      sum += value * value;
    }
    pieces[static_cast<std::size_t>(begin / kPieceElements)] = sum;
  });
  return std::accumulate(pieces.begin(), pieces.end(), 0.0);
}

/// Averages a piece. It is a function for the same reason as update_piece().
void average_piece(const float* __restrict weights, float share, std::int64_t count,
                   float* __restrict average) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) average[i] = averaged(average[i], weights[i], share);
}

}  // namespace

Prepared prepare(const Update& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op), [parts = op.parts, scaled = op.scales > 0](std::span<std::byte* const> args) {
        const std::span<std::byte* const> shared = args.last(3);  // step non_finite costs
        const float* scales = scaled ? as_floats(args[args.size() - 4]) : nullptr;
        if (is_set(shared[1])) return;
        for (const Update::Part& part : parts) {
          const std::size_t count = part.arguments();
          if (part.images > 0 && !update_part(part, args.first(count), scales, shared[0]))
            set_flag(shared[2], true);
          args = args.subspan(count);
        }
      });
}

Prepared prepare(const UpdateSquares& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op), [parts = op.parts](std::span<std::byte* const> args) {
        auto* squares = reinterpret_cast<double*>(args.back());
        for (const UpdateSquares::Part& part : parts) {
          const float* const accumulator = part.accumulates ? as_floats(args[2]) : nullptr;
          *squares++ = squares_of(as_floats(args[0]), nullptr, part.count);
          *squares++ = part.gradient_type == DataType::bf16
                           ? squares_of(as<BFloat16>(args[1]), accumulator, part.count)
                           : squares_of(as_floats(args[1]), accumulator, part.count);
          args = args.subspan(part.accumulates ? 3 : 2);
        }
      });
}

Prepared prepare(const UpdateScales& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const std::byte* step_block = args[args.size() - 2];
    std::vector<ScaledPart> parts;
    int matrices = 0;
    for (std::size_t source = 0; source < op.sources.size(); ++source) {
      for (std::int64_t i = 0; i < op.sources[source]; ++i) {
        const UpdateScales::Part& part = op.parts[parts.size()];
        parts.push_back({reinterpret_cast<const double*>(args[source]) + 2 * i, part.rate_index,
                         static_cast<float>(part.images), part.matrix, part.accumulates});
        matrices = std::max(matrices, part.matrix + 1);
      }
    }
    double total = 0;
    std::vector<double> of_matrices(2 * static_cast<std::size_t>(matrices));
    for (const ScaledPart& part : parts)
      part.add(rates_at(step_block, part.rate_index), &total, of_matrices.data());
    float* scales = as_floats(args.back());
    for (const ScaledPart& part : parts) {
      part.write(rates_at(step_block, part.rate_index), header_of(step_block).clip_norm, &total,
                 of_matrices.data(), scales);
      scales += 2;
    }
  });
}

Prepared prepare(const Average& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op), [counts = op.counts](std::span<std::byte* const> args) {
        const float share = header_of(args.back()).average_share;
        for (const std::int64_t count : counts) {
          for_pieces(count, [&](std::int64_t begin, std::int64_t end) {
            average_piece(as_floats(args[0]) + begin, share, end - begin, as_floats(args[1]) + begin);
          });
          args = args.subspan(2);
        }
      });
}

Prepared prepare(const AnyNonFinite& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [](std::span<std::byte* const> args) {
    set_flag(args.back(), std::any_of(args.begin(), args.end() - 1, is_set));
  });
}

}  // namespace convnet::cpu::own
