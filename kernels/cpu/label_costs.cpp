// Costs with a label for every output, and sums of squares. What every image costs is computed in parallel,
// then added in order, so that sums are reproducible.
#include <cmath>

#include "kernels/cost_math.h"
#include "kernels/cpu/own_kernel.h"
#include "kernels/functors.h"

namespace convnet::cpu::own {
namespace {

bool all_finite(const float* values, std::int64_t count) {
  std::int64_t finite = 0;
#pragma omp simd reduction(+ : finite)
  for (std::int64_t i = 0; i < count; ++i) finite += values[i] - values[i] == 0 ? 1 : 0;
  return finite == count;
}

/// The chance that an output drawn from the most probable ones lacks the largest label.
double expected_error(const float* labels, const float* probs, std::int64_t c) {
  float best = probs[0], label = labels[0];
  for (std::int64_t i = 1; i < c; ++i) {
    best = std::max(best, probs[i]);
    label = std::max(label, labels[i]);
  }
  std::int64_t tied = 0, right = 0;
  for (std::int64_t i = 0; i < c; ++i) {
    tied += probs[i] == best ? 1 : 0;
    right += probs[i] == best && labels[i] == label ? 1 : 0;
  }
  return 1 - static_cast<double>(right) / static_cast<double>(tied);
}

/// The amounts that one image adds to the costs.
struct ImageCost {
  double cost = 0, wrong = 0, error = 0;
  bool finite = true;
};

ImageCost crossent(const float* labels, const float* probs, std::int64_t c) {
  ImageCost image;
  for (std::int64_t i = 0; i < c; ++i)
    image.cost -= weighted_log(static_cast<double>(labels[i]), static_cast<double>(probs[i]));
  image.finite = all_finite(probs, c) && std::isfinite(image.cost);
  image.error = image.finite ? expected_error(labels, probs, c) : 1;
  return image;
}

ImageCost binary_cost(const float* labels, const float* probs, std::int64_t c, double pos_weight) {
  ImageCost image;
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < c; ++i) {
    const auto t = static_cast<double>(labels[i]), p = static_cast<double>(probs[i]);
    image.cost -= weighted_log(pos_weight * t, p) + weighted_log(1 - t, 1 - p);
    wrong += (t > 0.5) != (p > 0.5) ? 1 : 0;
  }
  image.wrong = static_cast<double>(wrong) / static_cast<double>(c);
  image.finite = all_finite(probs, c) && std::isfinite(image.cost);
  image.error = image.finite ? expected_error(labels, probs, c) : 1;
  return image;
}

/// The sum of cost_of(labels, probs) over n images; sets costs[0] to 1 if one is not finite.
template <class CostOf>
ImageCost sum_images(std::int64_t n, std::int64_t c, std::span<std::byte* const> args,
                     const CostOf& cost_of) {
  std::vector<ImageCost> images(static_cast<std::size_t>(n));
#pragma omp parallel for schedule(static) if (n * c >= kParallelElements / 4)
  for (std::int64_t i = 0; i < n; ++i)
    images[static_cast<std::size_t>(i)] = cost_of(as_floats(args[0]) + i * c, as_floats(args[1]) + i * c);
  ImageCost sum;
  for (const ImageCost& image : images) {
    sum.cost += image.cost;
    sum.wrong += image.wrong;
    sum.error += image.error;
    sum.finite = sum.finite && image.finite;
  }
  if (!sum.finite) *reinterpret_cast<double*>(args[2]) = 1;
  return sum;
}

/// Adds, for every class, the outputs p > 0.5 that are right, all such outputs and all labels t > 0.5.
void count_classes(std::int64_t n, std::int64_t c, const float* labels, const float* probs, double* counts) {
  for (std::int64_t image = 0; image < n; ++image, labels += c, probs += c)
    for (std::int64_t i = 0; i < c; ++i) {
      double* count = counts + 3 * i;
      count[0] += probs[i] > 0.5F && labels[i] > 0.5F ? 1 : 0;
      count[1] += probs[i] > 0.5F ? 1 : 0;
      count[2] += labels[i] > 0.5F ? 1 : 0;
    }
}

}  // namespace

Prepared prepare(const CrossentForward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const ImageCost sum = sum_images(op.n, op.c, args, [&](const float* labels, const float* probs) {
      return crossent(labels, probs, op.c);
    });
    double* costs = reinterpret_cast<double*>(args[2]) + op.slot;
    costs[0] += sum.cost;
    costs[1] += sum.error;
  });
}

Prepared prepare(const CrossentBackward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op), [count = op.n * op.c, coeff = op.coeff](std::span<std::byte* const> args) {
        const float *labels = as_floats(args[0]), *probs = as_floats(args[1]);
        float* diff = as_floats(args[2]);
        for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
          for (std::int64_t i = begin; i < end; ++i) diff[i] = -coeff * labels[i] / floored(probs[i]);
        });
      });
}

Prepared prepare(const SoftmaxCrossentBackward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
#pragma omp parallel for schedule(static) if (op.n * op.c >= kParallelElements)
    for (std::int64_t image = 0; image < op.n; ++image) {
      const float *labels = as_floats(args[0]) + image * op.c, *probs = as_floats(args[1]) + image * op.c;
      float* diff = as_floats(args[2]) + image * op.c;
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = 0; i < op.c; ++i) sum += static_cast<double>(labels[i]);
      const auto total = static_cast<float>(sum);
#pragma omp simd
      for (std::int64_t i = 0; i < op.c; ++i) diff[i] = op.coeff * (probs[i] * total - labels[i]);
    }
  });
}

Prepared prepare(const BinaryCostForward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const ImageCost sum = sum_images(op.n, op.c, args, [&](const float* labels, const float* probs) {
      return binary_cost(labels, probs, op.c, static_cast<double>(op.pos_weight));
    });
    double* costs = reinterpret_cast<double*>(args[2]) + op.slot;
    costs[0] += sum.cost;
    costs[1] += sum.wrong;
    if (op.per_class)
      count_classes(op.n, op.c, as_floats(args[0]), as_floats(args[1]), costs + 2);
    else
      costs[2] += sum.error;
  });
}

Prepared prepare(const BinaryCostBackward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const float *labels = as_floats(args[0]), *probs = as_floats(args[1]);
    float* diff = as_floats(args[2]);
    for_pieces(op.n * op.c,
               [=, coeff = op.coeff, pos_weight = op.pos_weight](std::int64_t begin, std::int64_t end) {
#pragma omp simd
                 for (std::int64_t i = begin; i < end; ++i) {
                   const float t = labels[i], p = probs[i];
                   diff[i] = coeff * ((1 - t) / floored(1 - p) - pos_weight * t / floored(p));
                 }
               });
  });
}

Prepared prepare(const LogisticBinaryCostBackward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const float *labels = as_floats(args[0]), *probs = as_floats(args[1]);
    float* diff = as_floats(args[2]);
    for_pieces(op.n * op.c,
               [=, coeff = op.coeff, pos_weight = op.pos_weight](std::int64_t begin, std::int64_t end) {
#pragma omp simd
                 for (std::int64_t i = begin; i < end; ++i) {
                   const float t = labels[i], p = probs[i];
                   diff[i] = coeff * ((1 - t) * p - pos_weight * t * (1 - p));
                 }
               });
  });
}

Prepared prepare(const SquaresForward& op, const LayoutHints& hints) {
  const TensorDesc tensor{op.dims, DataType::f32, hinted_layout(hints, 0)};
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor.layout),
      [count = stored_numbers(tensor), slot = op.slot](std::span<std::byte* const> args) {
        constexpr std::int64_t kPart = 4096;
        const float* src = as_floats(args[0]);
        std::vector<double> parts(static_cast<std::size_t>((count + kPart - 1) / kPart));
#pragma omp parallel for schedule(static) if (count >= kParallelElements)
        for (std::int64_t part = 0; part < std::ssize(parts); ++part) {
          double sum = 0;
#pragma omp simd reduction(+ : sum)
          for (std::int64_t i = part * kPart; i < std::min(count, (part + 1) * kPart); ++i) {
            const auto x = static_cast<double>(src[i]);
            sum += x * x;
          }
          parts[static_cast<std::size_t>(part)] = sum;
        }
        double sum = 0;
        for (double part : parts) sum += part;
        auto* costs = reinterpret_cast<double*>(args[1]);
        if (!std::isfinite(sum)) costs[0] = 1;
        costs[slot] += sum;
      });
}

Prepared prepare(const SquaresBackward& op, const LayoutHints& hints) {
  const TensorDesc tensor{op.dims, DataType::f32, hinted_layout(hints, 0)};
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor.layout),
      [count = stored_numbers(tensor), factor = 2 * op.coeff](std::span<std::byte* const> args) {
        const float* src = as_floats(args[0]);
        float* diff = as_floats(args[1]);
        for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
          for (std::int64_t i = begin; i < end; ++i) diff[i] = factor * src[i];
        });
      });
}

}  // namespace convnet::cpu::own
