// How well a net predicts numbers (regression): errors and R^2.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace convnet {

/// The errors of one number over the images of a test.
struct NumberScore {
  double root_mean_squared_error = 0, mean_absolute_error = 0;
  std::optional<double> r2;  ///< 1 - squared errors / squared distances of the targets from their mean;
                             ///< nullopt if all targets are equal
};

/// Collects the outputs and targets of a test's images.
class NumberScores {
 public:
  explicit NumberScores(std::vector<std::string> names);

  /// Adds an image.
  void add(std::span<const float> outputs, std::span<const float> targets);

  std::int64_t images() const { return images_; }
  const std::vector<std::string>& names() const { return names_; }
  /// Returns the errors of each number.
  std::vector<NumberScore> by_number() const;
  /// Returns the root of the mean squared error of all numbers, the mean of their absolute errors, and the
  /// mean of R^2 over the numbers that have it.
  static NumberScore means(const std::vector<NumberScore>& scores);
  /// Returns a line for each number, at most `most`, and a line with the means if there are several.
  std::string table(std::size_t most) const;

 private:
  struct Sums {
    double squares = 0, absolutes = 0;       ///< of errors
    double mean = 0, squared_distances = 0;  ///< of targets so far, and from it (Welford)
  };

  std::vector<std::string> names_;
  std::vector<Sums> sums_;
  std::int64_t images_ = 0;
};

}  // namespace convnet
