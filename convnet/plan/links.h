// The time of transfers that share the links of a machine.
#pragma once

#include <vector>

#include "convnet/plan/device_model.h"
#include "convnet/plan/plan.h"

namespace convnet {

/// A number of bytes that one device reads from another.
struct Transfer {
  DeviceId to, from;
  double bytes = 0;
};

/// Returns the seconds until all of these transfers, which begin together, have ended, without latency. Each
/// device sends at link_bandwidth and receives at link_bandwidth at the same time; all devices of a switch
/// together likewise send and receive at uplink_bandwidth.
double transfer_seconds(const DeviceModel& model, const std::vector<Transfer>& transfers, int devices);

/// Returns for each task the seconds in which it reads the memory of other devices, 0 if it reads none. Tasks
/// of the same kind for the same layer in the same pass, like the sums of a layer's gradients on all devices,
/// run at the same time and share the links.
Table<TaskId, double> link_seconds(const Plan& plan, const DeviceModel& model);

}  // namespace convnet
