// Runs plans on a backend whose operations block (CPU devices): one thread for each device follows that
// device's tasks, in the order of each of its streams, and waits for tasks of other devices. Messages to
// other processes go through the transport, which moves them while the devices compute.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "convnet/plan/plan_set.h"
#include "convnet/runtime/bound_plan.h"
#include "convnet/runtime/processes.h"
#include "convnet/runtime/watch.h"

namespace convnet {

/// Runs the steps of plans on this process's devices, one step at a time, and owns their threads.
class WorkerRunner {
 public:
  /// `physical` is the device behind each index of the plans, of which this process has those in `here`; each
  /// gets its thread now. `processes` is null where there is one process. Keeps a reference to `backend`.
  WorkerRunner(const Backend& backend, Table<DeviceId, int> physical, const std::vector<DeviceId>& here,
               double stall_seconds, Processes* processes);
  WorkerRunner(const WorkerRunner&) = delete;
  WorkerRunner& operator=(const WorkerRunner&) = delete;
  ~WorkerRunner();

  /// Runs one step and waits for its end. `addresses` says where each buffer of the plan lies; null for those
  /// of other processes. Throws what a task or `watch.after_task` threw; then no device starts another task.
  /// Throws RunError with a report of what each device waits for if no task ends for the seconds of a stall,
  /// or if messages no longer arrive; then no step may follow.
  void run(const std::shared_ptr<const BoundPlan>& bound, Table<BufferId, std::byte*> addresses,
           const Watch& watch);

  /// Returns whether a step that failed may still use its memory: a task has not come back, or a message is
  /// in flight.
  bool uses_memory() const;

 private:
  class Step;
  class Worker;

  [[noreturn]] void give_up(Step& step, const std::string& why);

  Table<DeviceId, int> physical_;
  double stall_seconds_;
  Processes* processes_;
  std::vector<std::unique_ptr<Worker>> workers_;  ///< one for each device of this process
  std::shared_ptr<const Step> unfinished_;        ///< the last step, until it has ended well
};

}  // namespace convnet
