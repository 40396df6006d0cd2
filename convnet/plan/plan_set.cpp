// The plans of a net, and the buffers they share.
#include <algorithm>

#include "convnet/plan/build.h"

namespace convnet {

PlanSet::PlanSet(const Graph& graph, const std::vector<MatrixInfo>& matrices, const Backend& backend,
                 const PlanOptions& options)
    : graph_(graph), matrices_(matrices), backend_(backend), options_(options) {
  std::int64_t slot = 1;  // slot 0 says whether a cost was not finite
  for (const Node& node : graph_.nodes) {
    weights_of_.emplace_back();
    for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
      const WeightOwner& owner = node.owners[i];
      std::vector<int>& of_node = weights_of_.back();
      if (owner != WeightOwner{node.id, static_cast<int>(i)}) {
        of_node.push_back(
            weights_of_[static_cast<std::size_t>(owner.node)][static_cast<std::size_t>(owner.index)]);
        continue;
      }
      of_node.push_back(static_cast<int>(weights_.size()));
      weights_.push_back(add_weights(node, static_cast<int>(i)));
    }
    if (node.is_cost()) {
      cost_slots_.push_back({node.id, slot, node.layer->facts.cost->values});
      slot += node.layer->facts.cost->values;
    }
  }
  for (const WeightBuffers& w : weights_) learners_.push_back(graph_.gradient_sources({w.node, w.index}));
  if (options_.mean) {
    Dims dims = matrices_[0].dims;
    dims.insert(dims.begin(), 1);
    for (int device = 0; device < devices(); ++device)
      mean_.push_back(add("mean", BufferKind::mean, device, {dims, DataType::f32, nullptr}, true));
  }
  for (int device = 0; device < devices(); ++device) {
    step_.push_back(
        add("step", BufferKind::step, device,
            {{step_block_bytes(static_cast<std::int64_t>(weights_.size()))}, DataType::u8, nullptr}, true));
    costs_.push_back(add("costs", BufferKind::costs, device, {{slot}, DataType::f64, nullptr}, true));
  }
}

int PlanSet::add(std::string name, BufferKind kind, int device, TensorDesc desc, bool decided) {
  Buffer b;
  b.name = std::move(name);
  b.kind = kind;
  b.device = device;
  b.bytes = decided ? desc.bytes() : 0;
  b.desc = std::move(desc);
  persistent_.push_back(std::move(b));
  return static_cast<int>(persistent_.size()) - 1;
}

/// Each replica has all weights. What an update needs besides is cut into a shard for each, or is one
/// replica's, in turn, where cutting does not pay or would cut the rows of a constraint.
WeightBuffers PlanSet::add_weights(const Node& node, int index) {
  constexpr std::int64_t kWorthCutting = 16384;
  const WeightSpec& spec = node.layer->weights[static_cast<std::size_t>(index)];
  const TensorDesc desc{spec.dims, DataType::f32, nullptr};
  WeightBuffers w;
  w.node = node.id;
  w.index = index;
  w.name = node.whole + "." + spec.name;
  w.rate_index = static_cast<std::int64_t>(weights_.size());
  for (int gpu : node.gpus) {
    w.weights.push_back(add(w.name, BufferKind::weights, gpu, desc, false));
    weight_of_buffer_[w.weights.back()] = static_cast<int>(weights_.size());
    persistent_.back().node = node.id;
    persistent_.back().index = index;
  }
  if (!options_.learns || spec.state) return w;
  const bool cut = element_count(spec.dims) >= kWorthCutting && !spec.constraint.acts();
  const int shards = cut ? node.replicas() : 1;
  for (int s = 0; s < shards; ++s) {
    UpdateShard shard;
    shard.replica = cut ? s : static_cast<int>(weights_.size()) % node.replicas();
    const int device = node.device(shard.replica);
    shard.increment = add("inc " + w.name, BufferKind::increment, device, desc, false);
    if (node.update_period > graph_.passes)
      shard.accumulator = add("sum d " + w.name, BufferKind::accumulator, device, desc, false);
    w.shards.push_back(shard);
  }
  return w;
}

const Plan& PlanSet::plan(Phase phase, std::int64_t images) {
  std::unique_ptr<Plan>& cached = plans_[{phase, images}];
  if (!cached) {
    auto made = std::make_unique<Plan>(PlanBuilder(*this, phase, images).build());
    place_buffers(*made, devices());
#ifdef CONVNET_CHECKS
    verify(*made, graph_);
#endif
    cached = std::move(made);
  }
  return *cached;
}

std::map<std::string, std::string> PlanSet::algorithms() const {
  std::map<std::string, std::string> chosen;
  for (const auto& [key, plan] : plans_) {
    for (const Task& task : plan->tasks) {
      if (task.flops > 0)
        chosen[graph_.nodes[static_cast<std::size_t>(task.node)].name + " " + op_name(task.op) + " " +
               std::to_string(plan->images)] = task.prepared->algorithm();
    }
  }
  return chosen;
}

std::int64_t PlanSet::memory_needed(int device) const {
  std::int64_t persistent = 0;
  std::int64_t transient = 0;
  for (const auto& [key, plan] : plans_) {
    const DeviceMemoryNeeds& needs = plan->memory[static_cast<std::size_t>(device)];
    persistent = needs.persistent;
    transient = std::max(transient, needs.transient);
  }
  return persistent + transient;
}

}  // namespace convnet
