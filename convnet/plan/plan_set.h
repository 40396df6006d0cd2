// The plans of one net, and the buffers that they share.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "convnet/plan/net_buffers.h"
#include "convnet/plan/plan.h"

namespace convnet {

/// Makes and keeps the plans of a net for one target. Which plans are made, and in which order, changes none
/// of them.
class PlanSet {
 public:
  /// Decides where everything lies that outlives a step. The graph and target must outlive the set.
  PlanSet(const Graph& graph, const std::vector<MatrixInfo>& matrices, const Target& target,
          const PlanOptions& options);

  /// Returns the plan for `images` images; made at the first call. Verified in builds with CONVNET_CHECKS.
  const Plan& plan(Phase phase, std::int64_t images);

  /// Makes a plan whose transient buffers have no places yet, for predictions: places take long to find where
  /// a step has very many buffers.
  Plan draft(Phase phase, std::int64_t images) const;

  const Graph& graph() const { return graph_; }
  const Target& target() const { return target_; }
  const Topology& topology() const { return options_.topology; }
  const std::vector<WeightBuffers>& weights() const { return net_buffers_.weights; }
  const Table<BufferId, Buffer>& persistent() const { return net_buffers_.buffers; }
  int devices() const { return graph_.gpu_count(); }
  IdRange<DeviceId> device_ids() const { return IdRange<DeviceId>(devices()); }
  BufferId step_buffer(DeviceId device) const { return net_buffers_.step[device]; }
  BufferId costs_buffer(DeviceId device) const { return net_buffers_.costs[device]; }
  /// One per device; none where no mean image is subtracted.
  const Table<DeviceId, BufferId>& mean_buffers() const { return net_buffers_.mean; }
  /// Returns the bytes that device `device` needs over all plans made so far.
  std::int64_t memory_needed(DeviceId device) const;

 private:
  const Graph& graph_;
  const std::vector<MatrixInfo> matrices_;
  const Target& target_;
  const PlanOptions options_;
  const NetBuffers net_buffers_;
  std::map<std::pair<Phase, std::int64_t>, std::unique_ptr<Plan>> plans_;
};

}  // namespace convnet
