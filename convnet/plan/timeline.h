// The times at which the tasks of a step ran, or are predicted to run, and trace files that show them.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "convnet/plan/plan.h"

namespace convnet {

/// The time in which a task ran, in seconds since the start of the step.
struct TaskTime {
  double begin = 0, end = 0;
};
using TaskTimes = Table<TaskId, TaskTime>;

/// Writes steps in Chrome's trace format, for ui.perfetto.dev or chrome://tracing: a process for each device,
/// a thread in it for each stream that has tasks, and arrows from tasks to tasks of other devices that wait
/// for them.
class ChromeTrace {
 public:
  /// All traces begin so (OutputOption::begins).
  static constexpr const char* begins = "{\"displayTimeUnit\"";

  /// `devices` names the devices of the plans; a device without a name is called "device N".
  explicit ChromeTrace(Table<DeviceId, std::string> devices = {}) : devices_(std::move(devices)) {}

  /// Adds a step of `plan` that began `start` seconds after the trace did. `times` has an entry for each
  /// task.
  void add_step(const Plan& plan, const Graph& graph, const TaskTimes& times, double start);
  /// Adds a step that begins when the last of those added so far ends.
  void add_step(const Plan& plan, const Graph& graph, const TaskTimes& times) {
    add_step(plan, graph, times, end_);
  }

  /// Returns the time at which the last task ended, in seconds since the start of the trace.
  double end() const { return end_; }

  /// Returns the trace, a JSON object.
  std::string str() const;
  /// Writes the trace to `file`, which appears whole or not at all. Throws RunError.
  void write(const std::string& file) const;

 private:
  void add_event(const std::string& json);
  std::string name_events() const;

  Table<DeviceId, std::string> devices_;
  std::set<std::pair<DeviceId, Stream>> rows_;  ///< device and stream of the tasks so far
  std::string events_;                          ///< JSON objects, separated by commas
  double end_ = 0;
  std::int64_t arrows_ = 0;
};

}  // namespace convnet
