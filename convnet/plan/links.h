// How long devices that read at the same time share the links of a machine.
#pragma once

#include <vector>

#include "convnet/plan/device_model.h"
#include "convnet/plan/plan.h"

namespace convnet {

/// Bytes that a device reads of another one.
struct Transfer {
  DeviceId to, from;
  double bytes = 0;
};

/// Seconds until all of these transfers, which begin together, have ended, without latency. A device sends
/// and receives at link_bandwidth at the same time, and so do all devices of a switch together at
/// uplink_bandwidth.
double transfer_seconds(const DeviceModel& model, const std::vector<Transfer>& transfers, int devices);

/// By task: the seconds in which it reads other devices' memory; 0 for tasks that do not. Tasks of a kind
/// that are for the same layer in the same pass, like the sums of a layer's gradients on all devices, share
/// the links.
Table<TaskId, double> link_seconds(const Plan& plan, const DeviceModel& model);

}  // namespace convnet
