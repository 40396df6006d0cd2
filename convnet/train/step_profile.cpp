#include "convnet/train/step_profile.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "convnet/base/error.h"

namespace convnet {
namespace {

constexpr int kLastTraced = 5;  ///< step of training

}  // namespace

/// Returns the times with those of the other processes' tasks, counted from the start of the step there.
TaskTimes StepProfile::times_of_all(const Plan& plan, TaskTimes times) const {
  if (processes_ == nullptr || traced_ > kLastTraced) return times;
  const std::vector<std::string> all =
      processes_->exchange({reinterpret_cast<const char*>(times.data()), times.size() * sizeof(TaskTime)});
  for (const TaskId t : plan.tasks.ids()) {
    const auto process = static_cast<std::size_t>(plan.topology.process(plan.tasks[t].device));
    std::memcpy(&times[t], all[process].data() + t.index() * sizeof(TaskTime), sizeof(TaskTime));
  }
  return times;
}

void StepProfile::add(const Plan& plan, const Graph& graph, const TaskTimes& times) {
  const TaskTimes all = times_of_all(plan, times);
  // The first step touches memory for the first time.
  if (++traced_ <= 1 || traced_ > kLastTraced || failed_) return;
  if (processes_ != nullptr && processes_->rank() != 0) return;
  trace_.add_step(plan, graph, all);
  try {
    trace_.write(path_);
  } catch (const RunError& e) {
    fmt::print(stderr, "warning: {}; training goes on without --profile\n", e.what());
    failed_ = true;  // traced_ stays the same in all processes, which exchange their times
  }
}

}  // namespace convnet
