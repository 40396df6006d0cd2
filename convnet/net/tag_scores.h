// How well a net finds the tags of images, of which each image has any number: average precision, F1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace convnet {

/// The scores of a tag that some images have.
struct TagScore {
  std::size_t tag = 0;
  std::int64_t images = 0;  ///< images that have it
  std::int64_t taken = 0;   ///< images whose probability is at least the threshold
  std::int64_t right = 0;   ///< those of them that have it
  /// Sum over all thresholds of (recall - recall at the next higher one) * precision.
  double average_precision = 0;
  double best_threshold = 0, best_f1 = 0;  ///< the threshold with the best F1; the highest of several
  double precision() const {
    return taken == 0 ? 0 : static_cast<double>(right) / static_cast<double>(taken);
  }
  double recall() const { return static_cast<double>(right) / static_cast<double>(images); }
  double f1() const { return 2 * static_cast<double>(right) / static_cast<double>(images + taken); }
};

/// Means over the tags that some images have.
struct TagMeans {
  std::int64_t tags = 0;
  double average_precision = 0;  ///< mAP
  double f1 = 0;                 ///< mean of the tags' F1 (macro)
  double pooled_f1 = 0;          ///< F1 of all pairs of an image and a tag, also of other tags (micro)
};

/// The scores of each tag that some images have, by tag, and their means.
struct TagResults {
  std::vector<TagScore> tags;
  TagMeans means;
};

/// Returns a threshold as an option takes it: rounded down, so that the answers at it stay above it.
std::string threshold_text(double threshold);

/// Collects the probabilities and targets of a test's images.
class TagScores {
 public:
  /// An image is taken to have the tags whose probability is at least `threshold`.
  TagScores(std::vector<std::string> names, double threshold);

  /// Adds an image, which has the tags whose target is at least 1/2.
  void add(std::span<const float> probabilities, std::span<const float> targets);

  double threshold() const { return threshold_; }
  const std::vector<std::string>& names() const { return names_; }
  /// Computes the scores, for which the images are sorted once for each tag.
  TagResults results() const;
  /// Computes the scores, and returns a line for each tag that some images have, the worst average precision
  /// first, at most `most`, and a line with the means.
  std::string table(std::size_t most) const;

 private:
  struct Answer {
    float probability = 0;
    bool is_there = false;
  };
  TagScore score(std::size_t tag) const;

  std::vector<std::string> names_;
  double threshold_;
  std::vector<std::vector<Answer>> answers_;  ///< by tag, of all images
};

}  // namespace convnet
