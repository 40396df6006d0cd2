// How a plan updates weights: sums over replicas, shards, constraints, and what every replica fetches
// afterwards.
#include <set>
#include <stdexcept>
#include <utility>

#include "convnet/plan/build.h"

namespace convnet {
namespace {

/// Floats [begin, begin + count) of a buffer.
BufferUse range_of(int id, Access access, std::int64_t begin, std::int64_t count) {
  const auto size = size_of(DataType::f32);
  return {id, access, 0, begin * size, count * size};
}

/// The layer that a task is for; -1 if there are several.
int the_only(const std::set<int>& nodes) { return nodes.size() == 1 ? *nodes.begin() : -1; }

}  // namespace

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

/// Notes the steps that `w` has to make: what the replicas found is summed and applied to each shard where it
/// is owned, then everybody fetches the shards of the others.
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
  for (const UpdateShard& shard : w.shards) {
    if (shard.count == 0) continue;
    PendingStep step;
    step.node = w.node;
    step.device = owner.device(shard.replica);
    step.sums = w.weights.size() > 1;
    const bool accumulates = shard.accumulator >= 0;
    step.part = {shard.count, images, w.rate_index, static_cast<int>(gradients.size()), accumulates};
    const auto range = [&](int id, Access access) { return range_of(id, access, shard.begin, shard.count); };
    step.uses = {range(w.weights[static_cast<std::size_t>(shard.replica)], Access::read_write),
                 {shard.increment, Access::read_write}};
    for (int gradient : gradients) step.uses.push_back(range(gradient, Access::read));
    if (accumulates) step.uses.push_back({shard.accumulator, Access::read_write});
    pending_steps_.push_back(std::move(step));
  }
  pending_updates_.push_back(&w);
  // Enough for a task that is worth its launch, and little enough that it hides behind the backward tasks to
  // come.
  constexpr std::int64_t kJoinedBytes = 1 << 20, kJoinedBytesOnGpus = 4 << 20;
  pending_bytes_ += layout.bytes();
  if (pending_bytes_ >= (set_.backend_.runs_streams_together() ? kJoinedBytesOnGpus : kJoinedBytes))
    make_updates();
}

/// Writes down all pending updates.
void PlanBuilder::make_updates() {
  const At user = at_;
  for (int device = 0; device < set_.devices(); ++device) {
    for (const bool sums : {false, true}) make_steps(device, sums);
  }
  pending_steps_.clear();
  pending_bytes_ = 0;
  std::vector<FetchedRange> fetched;
  for (const WeightBuffers* w : std::exchange(pending_updates_, {})) {
    constrain(*w);
    for (std::size_t r = 0; r < w->weights.size(); ++r) {
      for (const UpdateShard& shard : w->shards) {
        if (shard.replica == static_cast<int>(r) || shard.count == 0) continue;
        const int from = w->weights[static_cast<std::size_t>(shard.replica)];
        fetched.push_back({w->node, from, w->weights[r], shard.begin, shard.count});
      }
    }
    // Copies in other layouts or types are those of the old weights.
    for (int id : w->weights) tensor(Value{id}).copies.clear();
  }
  publish(fetched);
  at_ = user;
}

/// The pending steps of a device, of shared matrices or of those that it has alone, in one task.
void PlanBuilder::make_steps(int device, bool sums) {
  Update op;
  std::vector<BufferUse> uses;
  std::set<int> nodes;
  for (const PendingStep& step : pending_steps_) {
    if (step.device != device || step.sums != sums) continue;
    nodes.insert(step.node);
    op.parts.push_back(step.part);
    uses.insert(uses.end(), step.uses.begin(), step.uses.end());
  }
  if (op.parts.empty()) return;
  at_.device = device;
  const int broken_flag = broken();
  Task task = new_task(sums ? TaskKind::reduce_update : TaskKind::update, op,
                       set_.backend_.prepare(op, LayoutHints(arguments(op).size())));
  task.node = the_only(nodes);
  if (sums || set_.backend_.runs_streams_together()) task.stream = Stream::update;
  task.uses = std::move(uses);
  task.uses.push_back({set_.step_buffer(device), Access::read});
  task.uses.push_back({broken_flag, Access::read});
  task.uses.push_back({set_.costs_buffer(device), Access::read_write});
  plan_.tasks.push_back(std::move(task));
}

/// What follows the step of a matrix under a constraint.
void PlanBuilder::constrain(const WeightBuffers& w) {
  const WeightConstraint& c = graph_.weight({w.node, w.index}).constraint;
  if (!c.acts() || !random()) return;
  const UpdateShard& all = w.shards[0];
  at_.node = &graph_.nodes[static_cast<std::size_t>(w.node)];
  at_.device = at_.node->device(all.replica);
  const bool accumulates = all.accumulator >= 0;
  const int replica = w.weights[static_cast<std::size_t>(all.replica)];
  const Constrain op{buffer(replica).desc,
                     c.outer,
                     c.groups,
                     c.inner,
                     static_cast<float>(c.norm_min),
                     static_cast<float>(c.norm_max),
                     static_cast<float>(c.ball),
                     c.shrink,
                     accumulates,
                     w.rate_index};
  std::vector<Value> values = {Value{replica}};
  if (accumulates) values.push_back(step());
  emit(TaskKind::update, op, values);
  if (w.weights.size() > 1 || set_.backend_.runs_streams_together())
    plan_.tasks.back().stream = Stream::update;
}

/// Ranges of matrices go from the replicas that made them to the others: one task for each device that
/// fetches.
void PlanBuilder::publish(const std::vector<FetchedRange>& ranges) {
  for (int device = 0; device < set_.devices(); ++device) {
    CopyRuns op;
    std::vector<BufferUse> reads;
    std::vector<BufferUse> writes;
    std::set<int> nodes;
    for (const FetchedRange& range : ranges) {
      if (buffer(range.to).device != device) continue;
      nodes.insert(range.node);
      op.counts.push_back(range.count);
      reads.push_back(range_of(range.from, Access::read, range.begin, range.count));
      writes.push_back(range_of(range.to, Access::write, range.begin, range.count));
    }
    if (op.counts.empty()) continue;
    at_.device = device;
    Task task = new_task(TaskKind::publish, op, set_.backend_.prepare(op, LayoutHints(2 * reads.size())));
    task.node = the_only(nodes);
    task.stream = Stream::update;
    task.uses = std::move(reads);
    task.uses.insert(task.uses.end(), writes.begin(), writes.end());
    plan_.tasks.push_back(std::move(task));
  }
}

/// Statistics that the first replica keeps, to the others.
void PlanBuilder::publish_state(const Node& node) {
  std::vector<FetchedRange> ranges;
  for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
    if (!node.layer->weights[i].state) continue;
    const std::vector<int>& replicas = weight_buffers(i).weights;
    const std::int64_t floats = buffer(replicas[0]).bytes / size_of(DataType::f32);
    for (std::size_t r = 1; r < replicas.size(); ++r)
      ranges.push_back({node.id, replicas[0], replicas[r], 0, floats});
  }
  publish(ranges);
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
