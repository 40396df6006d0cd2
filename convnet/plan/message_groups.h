// The groups in which a communicator carries the messages of several processes.
#pragma once

#include <set>

#include "convnet/plan/plan.h"

namespace convnet {

/// Returns the send tasks with which a new group of messages begins, for all processes. The messages of a
/// process between two of them are a group: they are neighbours among its tasks, and none waits for another
/// one. Both ends of a message lie in groups that share all their messages. NCCL needs that: it connects two
/// processes, and orders their messages, a group at a time, so a group that has its other ends in several
/// groups may wait forever. The first group that has not ended can always go on.
std::set<TaskId> begins_of_groups(const Plan& plan);

}  // namespace convnet
