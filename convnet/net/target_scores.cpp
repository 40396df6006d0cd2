#include "convnet/net/target_scores.h"

#include <span>
#include <utility>

#include "convnet/net/predictions.h"

namespace convnet {

std::vector<Compared> compared_tags(const Graph& graph, const std::vector<MatrixInfo>& matrices) {
  std::vector<Compared> found;
  for (const Node& node : graph.nodes) {
    if (!node.is_cost() || node.layer->facts.cost->labels != CostLabels::numbers ||
        node.layer->facts.cost->differentiates != LayerFunction::logistic)
      continue;
    const Node& targets = graph.nodes[node.inputs[0]];
    const Node& probabilities = graph.nodes[node.inputs[1]];
    if (!targets.layer->facts.data) continue;
    found.push_back({node.name, probabilities.section, targets.section,
                     names_of_outputs(matrices, probabilities.layer->output.size())});
  }
  return found;
}

std::vector<Compared> compared_numbers(const Graph& graph, const std::vector<MatrixInfo>& matrices) {
  std::vector<Compared> found;
  for (const Node& node : graph.nodes) {
    if (!node.is_cost() || node.layer->facts.cost->labels != CostLabels::none || node.inputs.size() != 1)
      continue;
    const Node& difference = graph.nodes[node.inputs[0]];
    if (!difference.layer->weights.empty() || difference.inputs.size() != 2) continue;
    const Node *outputs = &graph.nodes[difference.inputs[0]], *targets = &graph.nodes[difference.inputs[1]];
    if (outputs->layer->facts.data) std::swap(outputs, targets);
    const auto& data = targets->layer->facts.data;
    if (!outputs->weights_below || !data || data->matrix == 0 || targets->layer->label_classes() > 0)
      continue;
    // A map or a vector: other than the images, targets are numbers in either case.
    const std::int64_t size = targets->layer->output.size();
    if (!outputs->is_whole_layer() || outputs->layer->output.size() != size) continue;
    found.push_back({node.name, outputs->section, targets->section, names_of_outputs(matrices, size)});
  }
  return found;
}

TargetScores::TargetScores(const Graph& graph, const std::vector<MatrixInfo>& matrices, double threshold) {
  for (Compared& compared : compared_tags(graph, matrices)) {
    TagScores scores(compared.names, threshold);
    tagged_.push_back({std::move(compared), std::move(scores)});
  }
  for (Compared& compared : compared_numbers(graph, matrices)) {
    NumberScores scores(compared.names);
    numbered_.push_back({std::move(compared), std::move(scores)});
  }
}

std::vector<std::string> TargetScores::layers() const {
  std::vector<std::string> layers;
  const auto list = [&](const auto& all) {
    for (const auto& [compared, scores] : all)
      layers.insert(layers.end(), {compared.outputs, compared.targets});
  };
  list(tagged_);
  list(numbered_);
  return layers;
}

void TargetScores::add(const OutputReader& reader, std::size_t first, const Plan& plan) {
  std::size_t layer = first;
  const auto values_of_images = [&] {
    const std::size_t next = layer++;
    return mean_of_views(reader.values(next), reader.shape(next).size(), plan.views);
  };
  const auto add_to = [&](auto& all) {
    for (auto& [compared, scores] : all) {
      const std::size_t count = compared.names.size();
      const std::vector<float> outputs = values_of_images(), targets = values_of_images();
      for (std::size_t i = 0; i < outputs.size(); i += count)
        scores.add(std::span(outputs).subspan(i, count), std::span(targets).subspan(i, count));
    }
  };
  add_to(tagged_);
  add_to(numbered_);
}

}  // namespace convnet
