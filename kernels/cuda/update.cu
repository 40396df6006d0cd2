// Updates of weights, the flag that stops them, and the constraints after them.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "convnet/base/error.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"
#include "kernels/cuda/ranges.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/sources.h"

namespace convnet::cuda {
namespace {

CONVNET_DEVICE inline const Rates& rates_at(const std::byte* step, std::int64_t index) {
  return reinterpret_cast<const Rates*>(step + sizeof(StepHeader))[index];
}

CONVNET_DEVICE inline bool is_finite(float v) { return v * 0 == 0; }

/// The parts of an update that are made in one launch.
struct Steps {
  struct Part {
    float *weights, *increment, *accumulator;  ///< accumulator: may be null
    const float* sum;                          ///< of earlier gradients, with the accumulator; null: none
    std::int64_t rate_index;
    float images;
    int first_gradient, end_gradient;
  };

  bool fits(int more_gradients) const {
    return !ranges.full() && gradient_count + more_gradients <= kMostGradients;
  }
  /// Adds a part whose first gradients are in `sum` already.
  void add(const Update::Part& from, std::span<std::byte* const> args, const float* sum, int summed) {
    Part& part = parts[part_count++];
    part.weights = as_floats(args[0]);
    part.increment = as_floats(args[1]);
    part.accumulator = from.accumulates ? as_floats(args.back()) : nullptr;
    part.sum = sum;
    part.rate_index = from.rate_index;
    part.images = static_cast<float>(from.images);
    part.first_gradient = gradient_count;
    for (int g = summed; g < from.gradients; ++g)
      gradients[gradient_count++] = as_floats(args[2 + static_cast<std::size_t>(g)]);
    part.end_gradient = gradient_count;
    ranges.add(from.count);
  }

  /// The step of one weight; whether it is finite after it.
  CONVNET_DEVICE bool step(const std::byte* step_block, std::int64_t element) const {
    const Ranges::Place at = ranges.find(element);
    const Part& part = parts[at.range];
    const std::int64_t i = at.index;
    const Rates& rates = rates_at(step_block, part.rate_index);
    float* accumulator = part.accumulator;
    // Starts from the accumulator, so that the order of summation is fixed.
    int g = part.first_gradient;
    float gradient = part.sum != nullptr      ? part.sum[i]
                     : accumulator != nullptr ? accumulator[i]
                                              : gradients[g++][i];
    for (; g < part.end_gradient; ++g) gradient += gradients[g][i];
    const float images = accumulator != nullptr ? rates.images : part.images;
    const bool due = images > 0;
    if (accumulator != nullptr) accumulator[i] = due ? 0.0F : gradient;
    if (!due) return true;
    const float change = rates.momentum * part.increment[i] - rates.epsilon * rates.decay * part.weights[i] -
                         rates.epsilon / images * gradient;
    const float weight = part.weights[i] + change;
    part.increment[i] = change;
    part.weights[i] = weight;
    return is_finite(weight);
  }

  Ranges ranges;
  Part parts[Ranges::kMost];
  const float* gradients[kMostGradients];  ///< gradients of all parts
  int part_count = 0, gradient_count = 0;
};

/// Sums as many gradients of a part as leave a launch's number, in the order in which one launch would;
/// returns how many.
int sum_first_gradients(Stream stream, const Update::Part& part, std::span<std::byte* const> args,
                        float* sum) {
  int summed = 0;
  while (part.gradients - summed > kMostGradients) {
    Sources<const float> from;
    const float* start = summed > 0 ? sum : part.accumulates ? as_floats(args.back()) : nullptr;
    for (; from.count < kMostSources; ++summed) from.add(args[2 + static_cast<std::size_t>(summed)]);
    for_each(stream, part.count, [=] CONVNET_DEVICE(std::int64_t i) {
      int g = 0;
      float total = start != nullptr ? start[i] : from.from[g++][i];
      for (; g < from.count; ++g) total += from.from[g][i];
      sum[i] = total;
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
      form, [parts = op.parts](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        float* sums = as_floats(workspace);
        const std::byte* step_block = args[args.size() - 3];
        const auto* broken = reinterpret_cast<const double*>(args[args.size() - 2]);
        auto* costs = reinterpret_cast<double*>(args[args.size() - 1]);
        for (auto part = parts.begin(); part != parts.end();) {
          Steps steps;
          for (; part != parts.end() && steps.fits(std::min(part->gradients, int{kMostGradients})); ++part) {
            const auto count = static_cast<std::size_t>(part->arguments());
            if (part->images > 0) {
              const bool many = part->gradients > kMostGradients;
              const int summed = many ? sum_first_gradients(stream, *part, args.first(count), sums) : 0;
              steps.add(*part, args.first(count), many ? sums : nullptr, summed);
              if (many) sums += part->count;
            }
            args = args.subspan(count);
          }
          for_each(stream, steps.ranges.total(), [=] CONVNET_DEVICE(std::int64_t i) {
            // All threads that write it write the same value. On one device `broken` and `costs` are the same
            // memory: then a weight that breaks stops some of the others, in a run that ends here anyhow.
            if (broken[0] == 0 && !steps.step(step_block, i)) costs[0] = 1;
          });
        }
      });
}

template <>
Prepared prepare(const AnyBroken&, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [](Stream stream, std::span<std::byte* const> args, std::byte*) {
    auto* broken = reinterpret_cast<double*>(args.back());
    const std::size_t devices = args.size() - 1;
    for (std::size_t device = 0; device < devices;) {
      const bool goes_on = device > 0;
      Sources<double> costs;
      for (; device < devices && costs.count < kMostSources; ++device) costs.add(args[device]);
      for_each(stream, 1, [=] CONVNET_DEVICE(std::int64_t) {
        double any = goes_on ? broken[0] : 0;
        for (int i = 0; i < costs.count; ++i) any = costs.from[i][0] != 0 ? 1 : any;
        broken[0] = any;
      });
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
