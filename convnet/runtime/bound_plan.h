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

/// Everything that a plan's steps have in common: its operations, prepared, and the order of its tasks.
/// Immutable. The plan and graph must live as long as it is used for more than its operations.
class BoundPlan {
 public:
  /// Prepares every operation of the devices of `process` in the form that the plan gives it, for the
  /// physical device behind the plan's. Throws as Backend::bind() does.
  BoundPlan(const Plan& plan, const Graph& graph, const Backend& backend,
            const Table<DeviceId, int>& physical, int process);

  const Plan& plan() const { return plan_; }
  const Graph& graph() const { return graph_; }
  /// The operation of a task that is of this process and no message.
  const PreparedOp& op(TaskId task) const { return *ops_[task]; }
  /// The tasks of a device's stream, in order.
  const std::vector<TaskId>& queue(DeviceId device, std::size_t stream) const {
    return queues_[device][stream];
  }
  /// The other devices that wait for the end of a task.
  const std::vector<DeviceId>& waiting_devices(TaskId task) const { return waiting_[task]; }
  /// Whether another stream, of any device, waits for the end of a task.
  bool is_waited_for(TaskId task) const { return waited_for_[task]; }
  /// Adds the algorithms that the libraries chose, by layer, operation and images:
  /// "conv1 conv.forward 128" -> "jit:avx512_core".
  void add_algorithms(std::map<std::string, std::string>& chosen) const;

 private:
  const Plan& plan_;
  const Graph& graph_;
  Table<TaskId, std::shared_ptr<const PreparedOp>> ops_;
  Table<DeviceId, std::array<std::vector<TaskId>, kStreams>> queues_;  ///< by device and stream
  Table<TaskId, std::vector<DeviceId>> waiting_;
  Table<TaskId, bool> waited_for_;
};

/// Returns the channel of a message, which is that of all from one device's stream to another's, between two
/// processes. Exchanges have channel 0.
int message_channel(const Plan& plan, TaskId message);

}  // namespace convnet
