// The scores of a net that does not (only) choose classes: of tags, and of numbers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "convnet/net/number_scores.h"
#include "convnet/net/outputs.h"
#include "convnet/net/tag_scores.h"

namespace convnet {

/// Scores all costs of a net that compare outputs with tags or with numbers of the data set, over the images
/// of a test.
class TargetScores {
 public:
  /// A cost.bce or cost.dce, and the scores of its tags.
  struct Tagged {
    Tagger tagger;
    TagScores scores;
  };
  /// A cost.sum2, and the scores of its numbers.
  struct Numbered {
    Regressor regressor;
    NumberScores scores;
  };

  /// `threshold` is that of TagScores.
  TargetScores(const Graph& graph, const std::vector<MatrixInfo>& matrices, double threshold);

  /// Returns the layers that add() needs to have read, in their order.
  std::vector<std::string> layers() const;
  /// Adds the images of a step of `plan` with the matrices `inputs`. The reader's layers from number `first`
  /// on are layers().
  void add(const OutputReader& reader, std::size_t first, const Plan& plan,
           const std::vector<const std::byte*>& inputs);

  bool empty() const { return tagged_.empty() && numbered_.empty(); }
  const std::vector<Tagged>& tagged() const { return tagged_; }
  const std::vector<Numbered>& numbered() const { return numbered_; }

 private:
  std::vector<std::int64_t> row_bytes_;  ///< by matrix
  std::vector<Tagged> tagged_;
  std::vector<Numbered> numbered_;
};

}  // namespace convnet
