// Messages between processes: a plan for devices of several processes in which each task touches only the
// memory of its own process.
#pragma once

#include "convnet/plan/plan.h"

namespace convnet {

/// Gives every task that reads buffers of another process landing buffers in its own: before it come, for
/// each device that it reads from, a send task on that device and a receive task on its own. What has landed
/// in a process serves all its devices until it is written again where it comes from. Does nothing to plans
/// of one process. Dependencies must be found afterwards.
void split_between_processes(Plan& plan);

}  // namespace convnet
