// Slow and obvious double-precision versions of the own kernels, in canonical (N,C,H,W) order.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ops.h"

namespace convnet::reference {

using Values = std::vector<double>;

inline Values to_doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// d(sum of dy * f(x))/dx by central differences.
template <class Function>
Values central_differences(const Function& f, const Values& x, const Values& dy) {
  const auto cost = [&](const Values& at) {
    const Values y = f(at);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  };
  constexpr double kStep = 1e-5;
  Values gradient, moved = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    moved[i] = x[i] + kStep;
    const double above = cost(moved);
    moved[i] = x[i] - kStep;
    const double below = cost(moved);
    moved[i] = x[i];
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

/// First and last-plus-one map that map c is normalised over.
inline std::pair<std::int64_t, std::int64_t> norm_window(const CrossMapNorm& p, std::int64_t c) {
  const std::int64_t first = p.blocked ? c / p.size * p.size : c - p.size / 2;
  return {std::max<std::int64_t>(first, 0), std::min(first + p.size, p.c)};
}

inline double norm_denominator(const CrossMapNorm& p, const Values& x, std::int64_t n, std::int64_t c,
                               std::int64_t s) {
  const auto [first, last] = norm_window(p, c);
  double sum = 0;
  for (std::int64_t i = first; i < last; ++i) {
    const double v = x[static_cast<std::size_t>((n * p.c + i) * p.h * p.w + s)];
    sum += v * v;
  }
  return static_cast<double>(p.min_div) + static_cast<double>(p.scale) / static_cast<double>(p.size) * sum;
}

inline Values norm(const CrossMapNorm& p, const Values& x) {
  Values y;
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t c = 0; c < p.c; ++c)
      for (std::int64_t s = 0; s < p.h * p.w; ++s)
        y.push_back(x[y.size()] * std::pow(norm_denominator(p, x, n, c, s), -static_cast<double>(p.power)));
  return y;
}

/// d(sum of dy * norm(x))/dx by central differences.
inline Values norm_gradient(const CrossMapNorm& p, const Values& x, const Values& dy) {
  return central_differences([&](const Values& at) { return norm(p, at); }, x, dy);
}

inline double neuron(const Neuron& f, double x) {
  const auto a = static_cast<double>(f.a), b = static_cast<double>(f.b);
  switch (f.kind) {
    case NeuronKind::ident: break;
    case NeuronKind::relu:
    case NeuronKind::nrelu: return std::max(x, 0.0);
    case NeuronKind::logistic: return 1 / (1 + std::exp(-x));
    case NeuronKind::tanh: return a * std::tanh(b * x);
    case NeuronKind::abs: return std::abs(x);
    case NeuronKind::softrelu: return std::log1p(std::exp(x));
    case NeuronKind::square: return x * x;
    case NeuronKind::sqrt: return std::sqrt(x);
    case NeuronKind::log: return std::log(a + x);
    case NeuronKind::brelu: return std::min(a, std::max(x, 0.0));
    case NeuronKind::linear: return a * x + b;
    case NeuronKind::drelu: return x - a * std::tanh(x / a);
    case NeuronKind::abstanh: return a * std::abs(std::tanh(b * x));
    case NeuronKind::leaky: return x < 0 ? a * x : x;
    case NeuronKind::elu: return x < 0 ? a * (std::exp(x) - 1) : x;
    case NeuronKind::silu: return x / (1 + std::exp(-x));
    case NeuronKind::gelu: return x * (1 + std::erf(x / std::sqrt(2.0))) / 2;
    case NeuronKind::mish: return x * std::tanh(std::log1p(std::exp(x)));
    case NeuronKind::hsigmoid: return std::min(1.0, std::max(0.0, (x + 3) / 6));
    case NeuronKind::hswish: return x * std::min(1.0, std::max(0.0, (x + 3) / 6));
  }
  return x;
}

/// The reference for one row.
inline Values softmax(const Values& x) {
  double sum = 0;
  for (double v : x) sum += std::exp(v);
  Values y;
  for (double v : x) y.push_back(std::exp(v) / sum);
  return y;
}

}  // namespace convnet::reference
