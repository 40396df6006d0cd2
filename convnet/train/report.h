// The lines of training on the terminal about devices, time and weights.
#pragma once

#include <string>
#include <vector>

#include "convnet/net/net.h"
#include "convnet/plan/timeline.h"

namespace convnet {

/// The seconds of a batch by use; those of work are means over the devices.
struct TimeUse {
  double compute = 0, communication = 0, data = 0;
  double steps = 0;  ///< wall clock of all minibatches

  void add(const Plan& plan, const TaskTimes& times, double wall);
  /// Returns "time: 91.0% compute, …" for a batch that took `wall` seconds.
  std::string text(double wall) const;
};

/// "Devices: cpu:0,1 (1 thread each); minibatches of 256 images in 2 microbatches of 128, 1 pass": what runs
/// where, and how a minibatch is cut.
std::string devices_text(const Net& net, const DeviceOptions& options, int minibatch);

/// Prints the mean magnitude of every matrix and of its increments.
void print_weights(const Net& net);

}  // namespace convnet
