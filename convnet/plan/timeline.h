// When tasks ran, or are predicted to run.
#pragma once

namespace convnet {

/// Seconds since the start of the step; by index into Plan::tasks.
struct TaskTime {
  double begin = 0, end = 0;
};

}  // namespace convnet
