// What training and tests say on the terminal: costs, progress, devices, time and weights.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "convnet/plan/timeline.h"
#include "convnet/train/checkpoint.h"
#include "convnet/train/net.h"

namespace convnet {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start);

/// Where the time of a batch went, in seconds; of work, the mean over the devices.
struct TimeUse {
  double compute = 0, communication = 0, data = 0;
  double steps = 0;  ///< wall clock of all minibatches

  void add(const Plan& plan, const std::vector<TaskTime>& times, double wall);
  /// "time: 91.0% compute, …" of a batch that took `wall` seconds.
  std::string text(double wall) const;
};

/// Zeros for every cost of a plan.
CostSums no_costs(const Plan& plan, const Graph& graph);
bool same_layers(const CostSums& a, const CostSums& b);
/// Adds a step's costs. Views of an image all have the same costs, those of the mean: each image counts once.
void add_costs(CostSums& into, const Plan& plan, const Graph& graph, const std::vector<double>& costs,
               std::int64_t images);
void pool(CostSums& into, const CostSums& from);

/// What a cost layer reports of a batch or a test, per image.
struct CostReport {
  const Node* node = nullptr;
  std::vector<double> values;  ///< as printed; the children's are added
};
/// One for each cost layer that is no other's child, in order of the file.
std::vector<CostReport> cost_reports(const CostSums& costs, const Graph& graph);
/// What the values that a cost layer prints are called: "-log p", "top-1 error", "top-5 error". `parameters`
/// is the file with its topk.
std::vector<std::string> value_names(const Node& cost, const IniFile& parameters);
/// The error of the first cost: its second value, or of costs that report no error the first.
double first_error(const CostSums& costs, const Graph& graph);
/// "logprob:  7.156030, 1.000000, 0.995768".
std::string cost_text(const CostSums& costs, const Graph& graph);

/// "Devices: cpu:0,1 (1 thread each); minibatches of 256 images in 2 microbatches of 128, 1 pass": what runs
/// where, and how a minibatch is cut.
std::string devices_text(const Net& net, const Options& options);

/// A warning that names links to images that lead nowhere; "" for none.
std::string dangling_links_text(const std::vector<std::string>& links);

/// Prints the mean magnitude of every matrix and of its increments.
void print_weights(const Net& net);

}  // namespace convnet
