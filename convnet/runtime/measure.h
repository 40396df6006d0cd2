// Measures the operations of a plan on this machine, to predict its step without running it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convnet/plan/plan.h"
#include "kernels/backend.h"

namespace convnet {

/// The median seconds of measured operations. Equal operations have the same text as their key.
using MeasuredOperations = std::map<std::string, double>;

/// Returns the seconds of each task of the plan, measured on `devices` physical devices of `backend`, from
/// `first_device` on. Every distinct operation runs a few times on scratch memory, on all devices at once,
/// because the devices of a machine share its memory. An operation that does not run on all devices at the
/// same time in a step is therefore measured slower than it is. This takes about as long as two or three
/// steps, and some milliseconds more for each quick operation. Operations in `known`, which must come from
/// the same devices, are not run again, and new ones are added to it. Throws DeviceError if there is too
/// little memory.
Table<TaskId, double> measure_seconds(const Plan& plan, const Backend& backend, int devices,
                                      MeasuredOperations* known = nullptr, int first_device = 0);

}  // namespace convnet
