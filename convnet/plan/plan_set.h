// The plans of one net, and the buffers that they share.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "convnet/plan/net_buffers.h"
#include "convnet/plan/plan.h"

namespace convnet {

/// Makes and keeps the plans of a net for one target. A plan does not depend on which other plans are made.
class PlanSet {
 public:
  /// Makes the persistent buffers (make_net_buffers()). The graph and target must outlive the set.
  PlanSet(const Graph& graph, const std::vector<MatrixInfo>& matrices, const Target& target,
          const PlanOptions& options);

  /// Makes a set whose plans run in the memory of `like`: `graph` has the same layers, weights and devices as
  /// its graph, and may differ in what is fused. The graph must outlive the set.
  PlanSet(const Graph& graph, const PlanSet& like);

  /// Returns the plan for minibatches of `images` images. The first call makes it, and verifies it in builds
  /// with CONVNET_CHECKS.
  const Plan& plan(Phase phase, std::int64_t images);
  /// Returns plan(), which it verifies if it is not made yet: for plans that are to run. Throws
  /// std::logic_error if the plan is wrong.
  const Plan& verified(Phase phase, std::int64_t images);
  /// Makes and verifies several plans at the same time, for minibatches of so many images, before plan()
  /// returns any of them.
  void make_verified(const std::vector<std::pair<Phase, std::int64_t>>& wanted);

  /// Makes a plan whose transient buffers have no places, for predictions: finding places takes long if a
  /// step has very many buffers.
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
  /// One for each device; empty if no mean image is subtracted.
  const Table<DeviceId, BufferId>& mean_buffers() const { return net_buffers_.mean; }
  /// Returns the bytes that `device` needs for all plans made so far, which share its memory.
  std::int64_t memory_needed(DeviceId device) const;

 private:
  std::unique_ptr<Plan> make(Phase phase, std::int64_t images) const;

  const Graph& graph_;
  const std::vector<MatrixInfo> matrices_;
  const Target& target_;
  const PlanOptions options_;
  const NetBuffers net_buffers_;
  std::map<std::pair<Phase, std::int64_t>, std::unique_ptr<Plan>> plans_;
};

}  // namespace convnet
