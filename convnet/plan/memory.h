// Places the buffers that live only during a minibatch into one block of memory per device.
#pragma once

#include <cstdint>

#include "convnet/plan/plan.h"

namespace convnet {

/// Gives the transient buffers of the first `devices` devices their offsets and fills in Plan::memory.
/// Buffers that are never in use at the same time may share memory. Needs find_dependencies().
void place_buffers(Plan& plan, int devices);

/// Returns a lower bound of the bytes that each of the first `devices` devices needs: its persistent buffers,
/// and the transient ones in use at the fullest moment. Transient buffers need not have places; with them, a
/// device needs somewhat more.
Table<DeviceId, std::int64_t> least_memory(const Plan& plan, int devices);

}  // namespace convnet
