// The times of a plan's operations on this machine, for predicting the step of plans that it does not run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convnet/plan/plan.h"
#include "kernels/backend.h"

namespace convnet {

/// The median seconds of operations that were measured, by a text that is equal for operations alike.
using MeasuredOperations = std::map<std::string, double>;

/// Seconds of each task of the plan, measured on `devices` physical devices of `backend`, from
/// `first_device`. Every distinct operation is run a few times on scratch memory, on `devices` threads at
/// once, because the devices of a machine share its memory: what does not run on all devices at the same time
/// is taken for slower than it is. Takes about as long as two or three steps, and some milliseconds for each
/// operation that is quick. Throws DeviceError where the memory does not suffice. Operations in `known`,
/// which are of the same devices, are not run again; new ones are added.
Table<TaskId, double> measure_seconds(const Plan& plan, const Backend& backend, int devices,
                                      MeasuredOperations* known = nullptr, int first_device = 0);

}  // namespace convnet
