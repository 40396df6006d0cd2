#include "convnet/plan/message_groups.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace convnet {

std::set<TaskId> begins_of_groups(const Plan& plan) {
  struct Process {
    bool has_messages = false;  ///< in the present group
    bool has_worked = false;    ///< since the last of them
  };
  const std::vector<Process> idle(static_cast<std::size_t>(plan.topology.processes()));
  std::vector<Process> processes = idle;
  std::set<TaskId> begins, group;
  const auto process_of = [&](const Task& task) -> Process& {
    return processes[static_cast<std::size_t>(plan.topology.process(task.device))];
  };
  for (const TaskId t : plan.tasks.ids()) {
    const Task& task = plan.tasks[t];
    if (!is_message(task.kind)) process_of(task).has_worked = true;
    if (task.kind != TaskKind::send) continue;  // the other end follows
    const Task& other = plan.tasks[task.partner];
    const auto must_wait = [&](const Task& end) {
      const Process& process = process_of(end);
      return (process.has_messages && process.has_worked) ||
             std::any_of(end.after.begin(), end.after.end(),
                         [&](TaskId after) { return group.contains(after); });
    };
    if (must_wait(task) || must_wait(other)) {
      begins.insert(t);
      group.clear();
      processes = idle;
    }
    process_of(task) = process_of(other) = {true, false};
    group.insert({t, task.partner});
  }
  return begins;
}

}  // namespace convnet
