// The scores of a net that does not (only) choose classes: of tags, and of numbers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "convnet/net/number_scores.h"
#include "convnet/net/outputs.h"
#include "convnet/net/tag_scores.h"

namespace convnet {

/// A cost compares the outputs of a layer with targets of the data set.
struct Compared {
  std::string cost;                ///< layer name
  std::string outputs, targets;    ///< layers, as OutputReader takes them
  std::vector<std::string> names;  ///< by output, printable; its number where the data set has no name
};

/// Returns the probabilities and targets of each cost.bce and cost.dce whose targets come from a data layer.
std::vector<Compared> compared_tags(const Graph& graph, const std::vector<MatrixInfo>& matrices);

/// Returns the outputs and targets of each cost.sum2 of the difference (or another combination) of a layer
/// with weights below it and of a matrix of numbers, which is not that of the images.
std::vector<Compared> compared_numbers(const Graph& graph, const std::vector<MatrixInfo>& matrices);

/// Scores all costs of a net that compare outputs with tags or with numbers of the data set, over the images
/// of a test.
class TargetScores {
 public:
  struct Tagged {
    Compared compared;
    TagScores scores;
  };
  struct Numbered {
    Compared compared;
    NumberScores scores;
  };

  /// `threshold` is that of TagScores.
  TargetScores(const Graph& graph, const std::vector<MatrixInfo>& matrices, double threshold);

  /// Returns the layers that add() needs to have read, in their order.
  std::vector<std::string> layers() const;
  /// Adds the images of a step of `plan`. The reader's layers from number `first` on are layers().
  void add(const OutputReader& reader, std::size_t first, const Plan& plan);

  bool empty() const { return tagged_.empty() && numbered_.empty(); }
  const std::vector<Tagged>& tagged() const { return tagged_; }
  const std::vector<Numbered>& numbered() const { return numbered_; }

 private:
  std::vector<Tagged> tagged_;
  std::vector<Numbered> numbered_;
};

}  // namespace convnet
