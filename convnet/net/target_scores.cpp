#include "convnet/net/target_scores.h"

#include <cstring>
#include <span>
#include <utility>

namespace convnet {

TargetScores::TargetScores(const Graph& graph, const std::vector<MatrixInfo>& matrices, double threshold) {
  for (const MatrixInfo& matrix : matrices) row_bytes_.push_back(matrix.image_bytes());
  for (Tagger& tagger : find_taggers(graph, matrices)) {
    TagScores scores(tagger.names, threshold);
    tagged_.push_back({std::move(tagger), std::move(scores)});
  }
  for (Regressor& regressor : find_regressors(graph, matrices)) {
    NumberScores scores(regressor.names);
    numbered_.push_back({std::move(regressor), std::move(scores)});
  }
}

std::vector<std::string> TargetScores::layers() const {
  std::vector<std::string> layers;
  for (const Tagged& t : tagged_) layers.push_back(t.tagger.layer);
  for (const Numbered& n : numbered_) {
    layers.push_back(n.regressor.outputs);
    layers.push_back(n.regressor.targets);
  }
  return layers;
}

void TargetScores::add(const OutputReader& reader, std::size_t first, const Plan& plan,
                       const std::vector<const std::byte*>& inputs) {
  const auto values_of_images = [&](std::size_t layer) {
    return mean_of_views(reader.values(layer), reader.shape(layer).size(), plan.views);
  };
  std::size_t layer = first;
  for (auto& [tagger, scores] : tagged_) {
    const std::size_t tags = tagger.names.size();
    const std::vector<float> probabilities = values_of_images(layer++);
    std::vector<float> targets(tags);
    for (std::size_t i = 0; i * tags < probabilities.size(); ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i) * plan.views * row_bytes_[tagger.targets];
      std::memcpy(targets.data(), inputs[tagger.targets] + row, tags * sizeof(float));
      scores.add(std::span(probabilities).subspan(i * tags, tags), targets);
    }
  }
  for (auto& [regressor, scores] : numbered_) {
    const std::size_t numbers = regressor.names.size();
    const std::vector<float> outputs = values_of_images(layer++), targets = values_of_images(layer++);
    for (std::size_t i = 0; i * numbers < outputs.size(); ++i)
      scores.add(std::span(outputs).subspan(i * numbers, numbers),
                 std::span(targets).subspan(i * numbers, numbers));
  }
}

}  // namespace convnet
