// A run's history as curves.
#pragma once

#include <string>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"
#include "convnet/show/chart.h"

namespace convnet {

/// A cost's curves.
struct CurveRequest {
  std::string cost;        ///< layer
  std::size_t value = 0;   ///< which of its values
  int smooth = 1;          ///< test points are means over as many tests, as far as there are some
  BatchRange train_range;  ///< an epoch
};

/// Training and tests over epochs: a point for each batch trained and for each test, or for several that the
/// history has added up. Throws InputError: no
/// such cost or value (with what there is), a history without entries, or one that is damaged.
Chart cost_chart(const TrainingState& state, const Graph& graph, const CurveRequest& request);

/// Writes the history as CSV: a header, then a line for each value of each cost of every batch trained and of
/// every test, or of several that the history has added up, whose mean it is. Throws InputError as
/// cost_chart() does.
std::string costs_csv(const TrainingState& state, const Graph& graph);

/// The learning rates that the net's matrices have had until now, a series for each schedule, at most eight.
/// `epochs`: those of the whole run. No series: nothing learns, or nothing was trained.
Chart rate_chart(const TrainingState& state, const Graph& graph, const BatchRange& train_range, int epochs);

}  // namespace convnet
