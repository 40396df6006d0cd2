#include "convnet/train/rate_jumps.h"

#include <fmt/format.h>

#include <cmath>

#include "convnet/graph/whole_layers.h"
#include "convnet/train/batch_order.h"
#include "convnet/train/report.h"

namespace convnet {

std::string rate_jump_warning(const LoadedRun& run) {
  constexpr double kTolerance = 0.01;
  const Checkpoint& c = *run.checkpoint;
  if (c.state.position.epoch == 0) return "";
  const BatchRange& range_now = run.options.data.train_range;
  const Position next = batch_after(c.state.position, range_now);
  if (next.epoch > run.options.epochs || out_of_patience(run.options, c.state.best)) return "";
  Diagnostics before;
  const NetFiles files = stored_files(c, before);
  const Graph old = build_graph(files.definition, files.parameters, run.provider->matrices(), {}, before);
  if (before.has_errors()) return "";  // made by a version that read files otherwise
  const TrainOptions options_then = parse_train_options(c.options);
  // Older checkpoints know the range only if an option named it.
  const BatchRange range_then = c.train_range                       ? *c.train_range
                                : c.options.contains("train-range") ? options_then.data.train_range
                                                                    : range_now;
  TrainingProgress then = progress_in(batch_after(c.state.position, range_then), range_then,
                                      options_then.epochs, c.state.iteration);
  TrainingProgress now = progress_in(next, range_now, run.options.epochs, c.state.iteration);
  const double drops = c.state.plateau.factor();
  then.factor = options_then.rate_factor * drops;
  now.factor = run.options.rate_factor * (run.options.plateau.on() ? drops : 1);
  std::string first;
  int jumps = 0;
  for (const Node* layer : whole_layers(run.graph)) {
    const Node& node = *layer;
    const Node* was = find_layer(old, node.layer_name);
    if (was == nullptr) continue;
    const std::size_t matrices = std::min(node.layer->weights.size(), was->layer->weights.size());
    for (std::size_t i = 0; i < matrices; ++i) {
      const double from = was->layer->weights[i].learning.epsilon.at(then);
      const double to = node.layer->weights[i].learning.epsilon.at(now);
      if (std::abs(to - from) <= kTolerance * std::abs(from)) continue;
      if (jumps++ == 0)
        first = fmt::format("'{}' {} goes on with {:.4g} instead of {:.4g}", node.layer_name,
                            node.layer->weights[i].name, to, from);
    }
  }
  if (jumps == 0) return "";
  const std::string others = jumps > 1 ? fmt::format(", and {} other(s) jump, too", jumps - 1) : "";
  return fmt::format(
      "warning: a learning rate jumps where the run goes on: "
      "{}{}; the parameter file{} changed since the checkpoint",
      first, others,
      now.factor != then.factor ? ", --rate-factor, --plateau, --set or --epochs has"
      : range_now == range_then ? ", --set or --epochs has"
                                : ", --set, --epochs or the training range has");
}

}  // namespace convnet
