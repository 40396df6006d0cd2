// Watch says what a caller wants to know of a step while it runs.
#pragma once

#include <functional>

#include "convnet/plan/timeline.h"

namespace convnet {

struct Watch {
  TaskTimes* times = nullptr;                   ///< receives when each task ran
  std::function<void(TaskId task)> after_task;  ///< called after each task
  bool any() const { return times != nullptr || after_task; }
};

}  // namespace convnet
