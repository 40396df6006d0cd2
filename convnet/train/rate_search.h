// The search for a learning rate (--find-rate): the learning-rate range test of L. Smith, "Cyclical Learning
// Rates for Training Neural Networks" (arXiv 1506.01186).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace convnet {

/// A sequence of minibatches that are trained at ever higher learning rates, and what their costs say about
/// the rates to begin with. All rates of the parameter file are multiplied by a factor that grows from
/// minibatch to minibatch.
///
///     RateSearch search;
///     while (!search.ended()) search.add(cost of a minibatch at search.factor());
class RateSearch {
 public:
  /// Returns the factor of the rates in the next minibatch.
  double factor() const;
  /// Adds the cost per image of a minibatch at factor(). Takes one that is not finite for an explosion.
  void add(double cost);
  /// Returns whether all factors were tried, or the cost has exploded.
  bool ended() const;
  /// Returns whether the cost has exploded: the smoothed cost is above its lowest value by more than three
  /// times the first cost.
  bool exploded() const { return exploded_; }
  std::size_t minibatches() const { return costs_.size(); }
  /// Returns the number of minibatches of a search in which the cost does not explode.
  static int most_minibatches();

  /// A factor, and the costs of its minibatch.
  struct Point {
    double factor = 0;
    double cost = 0;
    double smoothed = 0;  ///< value of a line that was fitted to the costs at factors nearby
    double slope = 0;     ///< its slope: the change of the cost when the rates are ten times as high
  };
  /// Returns the points of the curve. Costs beyond the explosion are those at which it begins.
  std::vector<Point> curve() const;
  /// Returns the point at which the smoothed cost falls most steeply, its factor rounded to two digits.
  /// nullopt if the cost falls by no more than its noise, or by no more than a hundredth of the first cost.
  std::optional<Point> suggestion() const;

 private:
  double ceiling() const;

  std::vector<double> costs_;
  double average_ = 0, lowest_ = 0;  ///< the running average of the costs, and its lowest value
  bool exploded_ = false;
};

/// Returns the curve of a search as a drawing of characters, in lines of at most 79.
std::string curve_text(const RateSearch& search);

/// Returns the results of a search as a JSON object.
std::string rates_json(const RateSearch& search, std::int64_t minibatch);

}  // namespace convnet
