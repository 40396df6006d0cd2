// The report of `convnet bench`: tables of layers and operations.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "convnet/graph/graph.h"
#include "convnet/plan/plan.h"
#include "convnet/plan/timeline.h"

namespace convnet {

/// Medians over the measured steps, unless a comment says otherwise.
struct BenchMeasurement {
  double step = 0;                  ///< seconds of a step, wall clock
  double shortest = 0, mean = 0;    ///< seconds of the shortest step, and the mean over all steps
  double percentile_95 = 0;         ///< seconds that 95 % of the steps do not exceed
  int steps = 0;                    ///< number of measured steps
  double overhead = 0;              ///< share of a step in which the busiest device runs no task
  Table<TaskId, double> tasks;      ///< seconds of each task of the plan
  std::vector<TaskTimes> timeline;  ///< times of the tasks in the last steps
  std::optional<bool> recorded;     ///< whether steps were played from a recording; nullopt on the CPU
  double fed_step = 0;              ///< seconds of a step with new images each time
  double primitives = 0;            ///< seconds of the step's library work, each operation run alone
  std::vector<double> peaks;        ///< measured FLOP/s of all cores or of the first GPU
  bool winograd = false;            ///< whether a convolution is computed by Winograd's method
  std::map<std::string, std::string> algorithms;  ///< of each product, by its layer, operation and images
  double copy = 0;                                ///< measured bytes/s of copying
};

/// Returns the measured part of the report: the step, the machine, a row for each layer and one for each kind
/// of operation.
nlohmann::json bench_json(const Graph& graph, const Plan& plan, const BenchMeasurement& m, int minibatch);
/// Returns the whole report as text.
std::string bench_text(const nlohmann::json& report);

}  // namespace convnet
