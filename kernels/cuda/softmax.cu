// Softmax, a team for every image, and the mean over the views of an image.
#include <cmath>
#include <stdexcept>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"
#include "kernels/functors.h"

namespace convnet::cuda {
namespace {

/// y = exp(x - max x) / sum. A NaN or +inf anywhere in the row makes the whole row NaN.
template <class T>
struct Softmax {
  std::int64_t c;
  const T* src;
  float* dst;
  CONVNET_DEVICE void operator()(const Team& team, std::int64_t image) const {
    const T* x = src + image * c;
    float* y = dst + image * c;
    float largest = -INFINITY;
    for (std::int64_t i = team.rank(); i < c; i += team.size())
      largest = to_float(x[i]) > largest ? to_float(x[i]) : largest;
    largest = team.max(largest);
    float sum = 0;
    for (std::int64_t i = team.rank(); i < c; i += team.size()) {
      y[i] = std::exp(to_float(x[i]) - largest);
      sum += y[i];
    }
    const float inverse = 1 / team.sum(sum);
    for (std::int64_t i = team.rank(); i < c; i += team.size()) y[i] *= inverse;
  }
};

}  // namespace

template <>
Prepared prepare(const SoftmaxForward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [n = op.n, c = op.c, type = form.args[0].type](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    with_stored_type(type, [&](auto stored) {
      using T = decltype(stored);
      for_teams(stream, n, Softmax<T>{c, reinterpret_cast<const T*>(args[0]), as_floats(args[1])});
    });
  });
}

template <>
Prepared prepare(const AverageViews& op, const OpForm& form, const Context&) {
  if (op.views < 1 || op.n % op.views != 0) throw std::logic_error("views: rows that are not whole images");
  return std::make_shared<KernelOp>(form, [n = op.n, c = op.c, views = op.views](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    const float* src = as_floats(args[0]);
    float* dst = as_floats(args[1]);
    for_each(stream, n / views * c, [=] CONVNET_DEVICE(std::int64_t i) {
      const Quotient image = divide(i, c);
      const std::int64_t first = image.value * views * c + image.rest;
      float sum = 0;
      for (std::int64_t v = 0; v < views; ++v) sum += src[first + v * c];
      for (std::int64_t v = 0; v < views; ++v) dst[first + v * c] = sum / static_cast<float>(views);
    });
  });
}

template <>
Prepared prepare(const SoftmaxBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [n = op.n, c = op.c](Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float *dst = as_floats(args[0]), *diff_dst = as_floats(args[1]);
        float* diff_src = as_floats(args[2]);
        // dx = y * (dy - sum(dy * y)), with the floor of y that costs divide by.
        for_teams(stream, n, [=] CONVNET_DEVICE(const Team& team, std::int64_t image) {
          const float *y = dst + image * c, *dy = diff_dst + image * c;
          float* dx = diff_src + image * c;
          float dot = 0;
          for (std::int64_t i = team.rank(); i < c; i += team.size()) dot += dy[i] * floored(y[i]);
          dot = team.sum(dot);
          for (std::int64_t i = team.rank(); i < c; i += team.size()) dx[i] = floored(y[i]) * (dy[i] - dot);
        });
      });
}

}  // namespace convnet::cuda
