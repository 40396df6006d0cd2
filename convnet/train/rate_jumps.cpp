#include "convnet/train/rate_jumps.h"

#include <fmt/format.h>

#include <cmath>

namespace convnet {
namespace {

/// Returns the progress when the batch after `position` begins.
TrainingProgress progress_after(const Position& position, const TrainOptions& options) {
  const BatchRange& range = options.data.train_range;
  const double finished = (position.epoch - 1.0) * range.count() + position.batch - range.first + 1;
  return TrainingProgress::after(finished, range.count(), options.epochs);
}

}  // namespace

std::string rate_jump_warning(const LoadedRun& run) {
  constexpr double kTolerance = 0.01;
  const Checkpoint& c = *run.checkpoint;
  if (c.state.position.epoch == 0) return "";
  Diagnostics before;
  const Graph old = build_graph(parse_ini(c.definition_path, c.definition_text, before),
                                parse_ini(c.parameters_path, c.parameters_text, before),
                                run.provider->matrices(), {}, before);
  if (before.has_errors()) return "";  // made by a version that read files otherwise
  TrainingProgress then = progress_after(c.state.position, parse_train_options(c.options)),
                   now = progress_after(c.state.position, run.options);
  then.minibatches = now.minibatches = static_cast<double>(c.state.iteration);
  std::string first;
  int jumps = 0;
  for (const Node& node : run.graph.nodes) {
    const Node* was = old.find(node.whole);
    // Parts of a layer have the rates of the whole.
    if (was == nullptr || node.first_element != 0 || node.gather) continue;
    const std::size_t matrices = std::min(node.layer->weights.size(), was->layer->weights.size());
    for (std::size_t i = 0; i < matrices; ++i) {
      const double from = was->layer->weights[i].learning.epsilon.at(then);
      const double to = node.layer->weights[i].learning.epsilon.at(now);
      if (std::abs(to - from) <= kTolerance * std::abs(from)) continue;
      if (jumps++ == 0)
        first = fmt::format("'{}' {} goes on with {:.4g} instead of {:.4g}", node.whole,
                            node.layer->weights[i].name, to, from);
    }
  }
  if (jumps == 0) return "";
  const std::string others = jumps > 1 ? fmt::format(", and {} other(s) jump, too", jumps - 1) : "";
  return fmt::format(
      "warning: a learning rate jumps where the run goes on: {}{}; the parameter file or --epochs has "
      "changed since the checkpoint",
      first, others);
}

}  // namespace convnet
