// The optimisers by their definitions, in double precision.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "tests/reference/net_reference.h"

namespace convnet::test {

/// An optimiser with the numbers of with_optimizer(): beta2 0.99, adamEpsilon 1e-3 (rmsprop: 0.5), trust
/// 0.01.
class ReferenceOptimizer {
 public:
  explicit ReferenceOptimizer(std::string optimizer) : optimizer_(std::move(optimizer)) {}

  /// Returns the sum of the squares.
  static double squares_of(const reference::Values& values) {
    double sum = 0;
    for (const double v : values) sum += v * v;
    return sum;
  }

  /// Changes the weights and increments of a matrix by its gradient, which is the mean over images, in its
  /// `number`-th update, from 1.
  void update(const std::string& name, reference::Matrix& m, int number) {
    double rate = m.epsilon;
    if (optimizer_ == "lars" && name.find(".weights.") != std::string::npos) {
      const double w = std::sqrt(squares_of(m.values)), g = std::sqrt(squares_of(m.gradient));
      rate *= 0.01 * w / (g + m.decay * w);
    }
    reference::Values& squares = squares_[name];
    squares.resize(m.values.size());
    for (std::size_t i = 0; i < m.values.size(); ++i) {
      double& w = m.values[i];
      double& inc = m.increment[i];
      if (optimizer_ == "adamw") {
        const double g = m.gradient[i];
        w *= 1 - rate * m.decay;
        inc = m.momentum * inc + (1 - m.momentum) * g;
        squares[i] = 0.99 * squares[i] + 0.01 * g * g;
        const double mean = inc / (1 - std::pow(m.momentum, number));
        const double deviation = std::sqrt(squares[i] / (1 - std::pow(0.99, number)));
        w -= rate * mean / (deviation + 1e-3);
      } else if (optimizer_ == "rmsprop") {
        const double g = m.gradient[i] + m.decay * w;
        squares[i] = 0.99 * squares[i] + 0.01 * g * g;
        inc = m.momentum * inc - rate * g / (std::sqrt(squares[i]) + 0.5);
        w += inc;
      } else {
        const double g = m.gradient[i] + m.decay * w;
        inc = m.momentum * inc - rate * g;
        w += optimizer_ == "nesterov" ? m.momentum * inc - rate * g : inc;
      }
    }
  }

 private:
  std::string optimizer_;
  std::map<std::string, reference::Values> squares_;  ///< running means of squared gradients, by matrix
};

}  // namespace convnet::test
