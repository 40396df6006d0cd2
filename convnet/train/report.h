// The lines that training prints about devices, time, tests and weights.
#pragma once

#include <string>
#include <vector>

#include "convnet/net/net.h"
#include "convnet/plan/timeline.h"
#include "convnet/train/options.h"
#include "convnet/train/test_outputs.h"
#include "convnet/train/watched_cost.h"

namespace convnet {

/// The seconds of a batch by use. Those for computing and communication are means over the devices.
struct TimeUse {
  double compute = 0, communication = 0, data = 0;
  double steps = 0;      ///< wall clock of all minibatches
  bool several = false;  ///< whether there are several devices

  void add(const Plan& plan, const TaskTimes& times, double wall);
  /// Returns "time: 91.0% compute, …" for a batch that took `wall` seconds.
  std::string text(double wall) const;
};

/// Returns a line about the devices and how a minibatch is cut: "Devices: cpu:0,1, 1 thread(s) each;
/// minibatches of 256 images, 128 a replica on 2 replicas, in 1 pass".
std::string devices_text(const Net& net, const DeviceOptions& options, int minibatch);

/// Returns the last lines of a run that has trained for `seconds`: its best and its last test by the watched
/// cost, its last `checkpoint` ("" for none) in `folder`, and commands that may follow. `images` describes
/// the provider's matrix 0.
std::string summary_text(const TrainingState& state, const TrainOptions& options, const WatchedCost& watched,
                         const Graph& graph, const MatrixInfo& images, double seconds,
                         const std::string& folder, const std::string& checkpoint);
/// Returns a line about what may keep costs and weights finite. `updated` says whether weights were updated.
std::string divergence_advice(const StepOptions& options, bool updated);
/// Returns whether --patience has ended the run.
bool out_of_patience(const TrainOptions& options, const BestTest& best);

/// Returns "0.01", or "0.001 to 0.02": the learning rates of the matrices that learn.
std::string rates_text(const Net& net, const TrainingProgress& progress);

/// Returns the lines about a test on a terminal: its costs beside those of the test before it (null if there
/// is none), and the best test so far by the watched cost.
std::string test_table(const CostSums& test, const CostSums* before, const BestTest& best,
                       const WatchedCost& watched, const Graph& graph);

/// Returns the results of --test-only on `checkpoint` as a JSON object: its costs by layer and value, and the
/// errors by class, where they were counted.
std::string test_json(const std::string& checkpoint, const CostSums& test, const Graph& graph,
                      const TestOutputs& outputs);

/// Prints the mean absolute value of every matrix and of its increments.
void print_weights(const Net& net);

/// Prints the verdict on every gradient that was checked. Throws RunError if one is wrong.
void print_gradients(const std::vector<GradientReport>& reports);

}  // namespace convnet
