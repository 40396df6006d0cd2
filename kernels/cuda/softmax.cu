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

/// dx = y * (dy - sum(dy * y)), with the floor of y that costs divide by.
template <class T>
struct SoftmaxGradient {
  std::int64_t c;
  const float *dst, *diff_dst;
  T* diff_src;
  CONVNET_DEVICE void operator()(const Team& team, std::int64_t image) const {
    const float *y = dst + image * c, *dy = diff_dst + image * c;
    float dot = 0;
    for (std::int64_t i = team.rank(); i < c; i += team.size()) dot += dy[i] * floored(y[i]);
    dot = team.sum(dot);
    for (std::int64_t i = team.rank(); i < c; i += team.size())
      diff_src[image * c + i] = stored_as<T>(floored(y[i]) * (dy[i] - dot));
  }
};

/// Replaces the rows of an image's views by their mean, a thread for each column.
template <class T>
struct MeanOfViews {
  std::int64_t c, views;
  const T* src;
  float* dst;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const Quotient image = divide(i, c);
    const std::int64_t first = image.value * views * c + image.rest;
    float sum = 0;
    for (std::int64_t v = 0; v < views; ++v) sum += to_float(src[first + v * c]);
    for (std::int64_t v = 0; v < views; ++v) dst[first + v * c] = sum / static_cast<float>(views);
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
  return std::make_shared<KernelOp>(form, [n = op.n, c = op.c, views = op.views, type = form.args[0].type](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    with_stored_type(type, [&](auto stored) {
      using T = decltype(stored);
      for_each(stream, n / views * c,
               MeanOfViews<T>{c, views, reinterpret_cast<const T*>(args[0]), as_floats(args[1])});
    });
  });
}

template <>
Prepared prepare(const SoftmaxBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [n = op.n, c = op.c, type = form.args.back().type](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    with_stored_type(type, [&](auto stored) {
      using T = decltype(stored);
      for_teams(stream, n,
                SoftmaxGradient<T>{c, as_floats(args[0]), as_floats(args[1]), reinterpret_cast<T*>(args[2])});
    });
  });
}

}  // namespace convnet::cuda
