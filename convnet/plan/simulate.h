// Predicts how long a plan takes: from the needs of each task and a device model, or from measured times
// (measure.h), and from the order in which streams and dependencies let tasks run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "convnet/plan/device_model.h"
#include "convnet/plan/plan.h"
#include "convnet/plan/timeline.h"

namespace convnet {

/// The seconds of a step in which a device works. With concurrent streams it may compute and communicate at
/// the same time.
struct DeviceShare {
  double busy = 0, compute = 0, communication = 0;
};

/// Returns the share of each device in a step whose times are known.
Table<DeviceId, DeviceShare> device_shares(const Plan& plan, const TaskTimes& times);

/// A task of the critical path, and the seconds before it in which none of the tasks that it waits for ran.
struct PathStep {
  TaskId task{0};
  double waited = 0;
};

/// The course of a step, predicted or measured.
struct Simulation {
  TaskTimes times;
  double step = 0;  ///< seconds
  Table<DeviceId, DeviceShare> devices;
  /// From the start of the step to its end: each task began when the one before it ended (and `waited` had
  /// passed). To make the step faster, one of these must become faster.
  std::vector<PathStep> path;
};

/// Simulates a step of the plan; `seconds` has the duration of each task. Each stream of a device runs its
/// tasks in the order of the plan, each as soon as the stream is free and the tasks in Task::after have
/// ended. Without `concurrent_streams` a device runs one task at a time, as CPU devices do: the next task of
/// the first of the streams copy, update and compute whose next task can start. Throws std::logic_error if a
/// task waits for one that does not come before it in the list.
Simulation simulate(const Plan& plan, const Table<TaskId, double>& seconds, bool concurrent_streams);

/// Simulates a step on the machine of `model` in the same way. A task takes the longer one of the time to
/// compute and the time to move memory, plus the overhead. Loads read the host's memory; communication reads
/// the memory of other devices over links, which it shares with all that they carry at the same time. The
/// model must have `flops` for `precision`, that of the plan.
Simulation simulate(const Plan& plan, const DeviceModel& model, Precision precision);

/// Returns the same facts about a step whose times are known, like those that the executor measured.
Simulation analyse(const Plan& plan, TaskTimes times, bool concurrent_streams);

/// Returns what `convnet plan` prints about a simulation: "model" (the machine), "step_seconds",
/// "images_per_second", "devices" and "critical_path", with a row for the tasks of each layer and kind.
nlohmann::json simulation_json(const Simulation& simulation, const Plan& plan, const Graph& graph,
                               const std::string& model);

/// Returns the text, a few lines, of the JSON of simulation_json().
std::string simulation_text(const nlohmann::json& simulation);

/// Returns a warning if `devices` devices are predicted to take longer for a minibatch than one; else "".
std::string slower_warning(int devices, double seconds, double seconds_alone);

}  // namespace convnet
