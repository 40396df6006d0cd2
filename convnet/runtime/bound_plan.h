// A finished plan made ready to run on a backend.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "convnet/plan/plan.h"
#include "kernels/backend.h"

namespace convnet {

/// Everything that all steps of a plan share: its prepared operations and the order of its tasks. Immutable.
/// plan(), graph() and add_algorithms() need the plan and graph to be alive.
class BoundPlan {
 public:
  /// Prepares every operation of the devices of `process` in the form that the plan gives it. `physical` is
  /// the device number behind each index of the plan. Throws as Backend::bind() does.
  BoundPlan(const Plan& plan, const Graph& graph, const Backend& backend,
            const Table<DeviceId, int>& physical, int process);

  const Plan& plan() const { return plan_; }
  const Graph& graph() const { return graph_; }
  /// Returns the operation of a task of this process that is not a message.
  const PreparedOp& op(TaskId task) const { return *ops_[task]; }
  /// Returns the tasks of a device's stream, in order.
  const std::vector<TaskId>& queue(DeviceId device, std::size_t stream) const {
    return queues_[device][stream];
  }
  /// Returns whether another stream, of any device, waits for the end of a task.
  bool is_waited_for(TaskId task) const { return waited_for_[task]; }
  /// Adds the algorithms that the libraries chose to `chosen`, by layer, operation and number of images:
  /// "conv1 conv.forward 128" -> "jit:avx512_core".
  void add_algorithms(std::map<std::string, std::string>& chosen) const;

 private:
  const Plan& plan_;
  const Graph& graph_;
  Table<TaskId, std::shared_ptr<const PreparedOp>> ops_;
  Table<DeviceId, std::array<std::vector<TaskId>, kStreams>> queues_;  ///< by device and stream
  Table<TaskId, bool> waited_for_;
};

/// Returns the transport channel of a message between two processes. All messages from one device's stream to
/// another device's stream share a channel. Channel 0 is for Processes::exchange().
int message_channel(const Plan& plan, TaskId message);

}  // namespace convnet
