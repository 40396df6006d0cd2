// Softmax, and the mean over the views of an image.
#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernels/cpu/own_kernel.h"
#include "kernels/functors.h"

namespace convnet::cpu::own {
namespace {

/// y = exp(x - max x) / sum. A NaN or +inf anywhere in the row makes the whole row NaN.
void softmax_row(const float* x, std::int64_t c, float* y) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < c; ++i) largest = std::max(largest, x[i]);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < c; ++i) {
    y[i] = std::exp(x[i] - largest);
    sum += y[i];
  }
  const float inverse = 1 / sum;
#pragma omp simd
  for (std::int64_t i = 0; i < c; ++i) y[i] *= inverse;
}

/// y = the mean of `views` rows of x, in each of as many rows.
void average_rows(const float* x, std::int64_t views, std::int64_t c, float* y) {
  for (std::int64_t i = 0; i < c; ++i) {
    float sum = 0;
    for (std::int64_t v = 0; v < views; ++v) sum += x[v * c + i];
    for (std::int64_t v = 0; v < views; ++v) y[v * c + i] = sum / static_cast<float>(views);
  }
}

/// dx = y * (dy - sum(dy * y)), with the floor of y that costs divide by.
void softmax_backward_row(const float* y, const float* dy, std::int64_t c, float* dx) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t i = 0; i < c; ++i) dot += dy[i] * floored(y[i]);
#pragma omp simd
  for (std::int64_t i = 0; i < c; ++i) dx[i] = floored(y[i]) * (dy[i] - dot);
}

}  // namespace

Prepared prepare(const SoftmaxForward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
#pragma omp parallel for schedule(static) if (op.n * op.c >= kParallelElements)
    for (std::int64_t n = 0; n < op.n; ++n)
      softmax_row(as_floats(args[0]) + n * op.c, op.c, as_floats(args[1]) + n * op.c);
  });
}

Prepared prepare(const AverageViews& op, const LayoutHints&) {
  if (op.views < 1 || op.n % op.views != 0) throw std::logic_error("views: rows that are not whole images");
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
#pragma omp parallel for schedule(static) if (op.n * op.c >= kParallelElements)
    for (std::int64_t first = 0; first < op.n; first += op.views)
      average_rows(as_floats(args[0]) + first * op.c, op.views, op.c, as_floats(args[1]) + first * op.c);
  });
}

Prepared prepare(const SoftmaxBackward& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
#pragma omp parallel for schedule(static) if (op.n * op.c >= kParallelElements)
    for (std::int64_t n = 0; n < op.n; ++n)
      softmax_backward_row(as_floats(args[0]) + n * op.c, as_floats(args[1]) + n * op.c, op.c,
                           as_floats(args[2]) + n * op.c);
  });
}

}  // namespace convnet::cpu::own
