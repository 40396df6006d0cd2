// Messages between processes: a plan for devices of several processes in which each task touches only the
// memory of its own process.
#pragma once

#include "convnet/plan/plan.h"

namespace convnet {

/// Changes every task that reads buffers of another process so that it reads landing buffers of its own
/// process. Before the task, for each device that it reads from, come a send task on that device and a
/// receive task on the task's device. All devices of a process use what has landed until its source is
/// written again. What a task would only copy is received where the copy stays, without a landing buffer.
/// Does nothing to plans of one process. find_dependencies() must follow.
void split_between_processes(Plan& plan);

}  // namespace convnet
