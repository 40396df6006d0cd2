// How a plan updates weights: sums over replicas, shards, constraints, and what every replica fetches
// afterwards.
#include <stdexcept>

#include "convnet/plan/build.h"

namespace convnet {

const WeightBuffers& PlanBuilder::weight_buffers(std::size_t i) const {
  return set_
      .weights_[static_cast<std::size_t>(set_.weights_of_.at(static_cast<std::size_t>(at_.node->id)).at(i))];
}

/// A layout for all replicas of a matrix, and so the ranges of its shards.
void PlanBuilder::decide_weights(WeightBuffers& w, const TensorDesc& desc) {
  for (int id : w.weights) decide_persistent(id, desc);
  const std::int64_t floats = desc.bytes() / size_of(DataType::f32);
  const auto shards = static_cast<std::int64_t>(w.shards.size());
  constexpr std::int64_t kAligned = 16;  // floats of a cache line
  for (std::int64_t k = 0; k < shards; ++k) {
    UpdateShard& shard = w.shards[static_cast<std::size_t>(k)];
    const auto cut = [&](std::int64_t part) {
      return part == shards ? floats : floats * part / shards / kAligned * kAligned;
    };
    shard.begin = cut(k);
    shard.count = cut(k + 1) - shard.begin;
    decide_persistent(shard.increment, {{shard.count}, DataType::f32, nullptr});
    if (shard.accumulator >= 0) decide_persistent(shard.accumulator, {{shard.count}, DataType::f32, nullptr});
  }
}

void PlanBuilder::decide_persistent(int id, const TensorDesc& desc) {
  Buffer& b = buffer(id);
  b.desc = desc;
  b.bytes = desc.bytes();
  tensor(Value{id}).buffer = id;
}

BufferUse PlanBuilder::range_of(int id, Access access, const UpdateShard& shard) {
  const auto size = size_of(DataType::f32);
  return {id, access, 0, shard.begin * size, shard.count * size};
}

/// Sums what the replicas found and makes the step: each shard where it is owned. Then everybody fetches the
/// shards of the others.
void PlanBuilder::update(WeightBuffers& w, std::int64_t images) {
  std::vector<int> gradients;
  const TensorDesc layout = buffer(w.weights[0]).desc;
  for (int id : w.weights) {
    const auto found = weight_gradients_.find(id);
    if (found == weight_gradients_.end()) continue;
    PlannedTensor& gradient = tensor(found->second);
    gradients.push_back(version(gradient, layout, gradient.device));
    weight_gradients_.erase(found);
  }
  if (gradients.empty()) return;
  const Node& owner = graph_.nodes[static_cast<std::size_t>(w.node)];
  const bool several = w.weights.size() > 1;
  const Stream stream = several ? Stream::update : Stream::compute;
  const At user = at_;
  for (const UpdateShard& shard : w.shards) {
    if (shard.count == 0) continue;
    at_.device = owner.device(shard.replica);
    const bool accumulates = shard.accumulator >= 0;
    const Update op{{{shard.count}, DataType::f32, nullptr},
                    images,
                    w.rate_index,
                    static_cast<int>(gradients.size()),
                    accumulates};
    const int broken_flag = broken();
    Task task = new_task(several ? TaskKind::reduce_update : TaskKind::update, op,
                         set_.backend_.prepare(op, LayoutHints(arguments(op).size())));
    task.stream = stream;
    const int mine = w.weights[static_cast<std::size_t>(shard.replica)];
    task.uses = {range_of(mine, Access::read_write, shard), {shard.increment, Access::read_write}};
    for (int gradient : gradients) task.uses.push_back(range_of(gradient, Access::read, shard));
    if (accumulates) task.uses.push_back({shard.accumulator, Access::read_write});
    task.uses.push_back({set_.step_buffer(at_.device), Access::read});
    task.uses.push_back({broken_flag, Access::read});
    task.uses.push_back({set_.costs_buffer(at_.device), Access::read_write});
    plan_.tasks.push_back(std::move(task));
  }
  const WeightConstraint& c = graph_.weight({w.node, w.index}).constraint;
  if (c.acts() && random()) {
    const UpdateShard& all = w.shards[0];
    at_.device = owner.device(all.replica);
    const bool accumulates = all.accumulator >= 0;
    const Constrain op{layout,
                       c.outer,
                       c.groups,
                       c.inner,
                       static_cast<float>(c.norm_min),
                       static_cast<float>(c.norm_max),
                       static_cast<float>(c.ball),
                       c.shrink,
                       accumulates,
                       w.rate_index};
    std::vector<Value> values = {Value{w.weights[static_cast<std::size_t>(all.replica)]}};
    if (accumulates) values.push_back(step());
    emit(TaskKind::update, op, values);
    plan_.tasks.back().stream = stream;
  }
  for (std::size_t r = 0; r < w.weights.size(); ++r) {
    std::vector<UpdateShard> others;
    for (const UpdateShard& shard : w.shards) {
      if (shard.replica != static_cast<int>(r) && shard.count > 0) others.push_back(shard);
    }
    if (!others.empty()) publish(w.weights, r, others);
  }
  // Copies in other layouts or types are those of the old weights.
  for (int id : w.weights) tensor(Value{id}).copies.clear();
  at_ = user;
}

/// Copies shards of a matrix from the replicas that own them to another.
void PlanBuilder::publish(const std::vector<int>& replicas, std::size_t to,
                          const std::vector<UpdateShard>& shards) {
  at_.device = buffer(replicas[to]).device;
  CopyRuns op;
  for (const UpdateShard& shard : shards) op.counts.push_back(shard.count);
  Task task = new_task(TaskKind::publish, op, set_.backend_.prepare(op, LayoutHints(2 * shards.size())));
  task.stream = Stream::update;
  for (const UpdateShard& shard : shards)
    task.uses.push_back(range_of(replicas[static_cast<std::size_t>(shard.replica)], Access::read, shard));
  for (const UpdateShard& shard : shards) task.uses.push_back(range_of(replicas[to], Access::write, shard));
  plan_.tasks.push_back(std::move(task));
}

/// Statistics that the first replica keeps, to the others.
void PlanBuilder::publish_state(const Node& node) {
  for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
    if (!node.layer->weights[i].state) continue;
    const std::vector<int>& replicas = weight_buffers(i).weights;
    const UpdateShard all{0, 0, buffer(replicas[0]).bytes / size_of(DataType::f32), -1, -1};
    for (std::size_t r = 1; r < replicas.size(); ++r) publish(replicas, r, {all});
  }
}

/// The buffer that says on this device whether a cost was broken up to this pass, on any device.
int PlanBuilder::broken() {
  if (set_.devices() == 1) return set_.costs_buffer(0);
  if (broken_.empty()) {
    const At user = at_;
    for (int device = 0; device < set_.devices(); ++device) {
      at_ = {nullptr, 0, device, true, false};
      PlannedTensor t;
      t.name = "broken";
      t.kind = BufferKind::workspace;
      t.device = device;
      t.dims = {1};
      t.type = DataType::f64;
      const Value flag = add(std::move(t));
      std::vector<Value> values;
      for (int other = 0; other < set_.devices(); ++other) values.push_back(Value{set_.costs_buffer(other)});
      values.push_back(flag);
      emit(TaskKind::reduce, AnyBroken{set_.devices()}, values, true);
      broken_.push_back(tensor(flag).buffer);
    }
    at_ = user;
  }
  return broken_[static_cast<std::size_t>(at_.device)];
}

}  // namespace convnet
