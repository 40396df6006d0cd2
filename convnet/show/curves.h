// A run's history as curves.
#pragma once

#include <string>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/graph/graph.h"
#include "convnet/show/chart.h"

namespace convnet {

/// The value of a cost whose curves are drawn.
struct CurveRequest {
  std::string cost;        ///< name of the cost layer
  std::size_t value = 0;   ///< index of the value among those that the layer reports
  int smooth = 1;          ///< each point of a test is the mean of up to this many tests
  BatchRange train_range;  ///< the batches of an epoch
};

/// Makes a chart of training and tests over epochs: a point for each trained batch and each test, or for
/// several that the history has added up. Throws InputError if there is no such cost or value (listing those
/// that exist), or if the history is empty or damaged.
Chart cost_chart(const TrainingState& state, const Graph& graph, const CurveRequest& request);

/// All files of costs_csv() begin so (OutputOption::begins).
inline constexpr const char* kCostsBegin = "epoch,batch,";
/// Writes the history as CSV: a header, then a line for each value of each cost of every batch trained and of
/// every test, or of several that the history has added up, whose mean it is. Throws InputError as
/// cost_chart() does.
std::string costs_csv(const TrainingState& state, const Graph& graph);

/// Makes a chart of the learning rates until now, with a series for each schedule, at most eight. `epochs` is
/// the length of the whole run, and `factor` the run's --rate-factor. The chart has no series if nothing
/// learns or nothing was trained.
Chart rate_chart(const TrainingState& state, const Graph& graph, const BatchRange& train_range, int epochs,
                 double factor = 1);

}  // namespace convnet
