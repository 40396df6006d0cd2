#include "convnet/plan/updates.h"

#include <algorithm>
#include <set>
#include <utility>

namespace convnet {
namespace {

/// Floats [begin, begin + count) of a buffer.
BufferUse range_of(BufferId id, Access access, std::int64_t begin, std::int64_t count) {
  const auto size = size_of(DataType::f32);
  return {id, access, 0, begin * size, count * size};
}

/// The layer that a task is for; none if there are several.
NodeId the_only(const std::set<NodeId>& nodes) { return nodes.size() == 1 ? *nodes.begin() : NodeId(); }

}  // namespace

UpdateWriter::UpdateWriter(const Graph& graph, const NetBuffers& net_buffers, const Plan& plan,
                           TaskEmitter& emitter)
    : graph_(graph),
      net_buffers_(net_buffers),
      plan_(plan),
      emitter_(emitter),
      backward_done_(graph.nodes.size(), 0),
      updated_(net_buffers.weights.size(), 0) {
  for (const WeightBuffers& w : net_buffers.weights)
    learners_.push_back(graph.gradient_sources({w.node, w.index}));
}

const WeightBuffers& UpdateWriter::weights(const Node& node, std::size_t i) const {
  return net_buffers_.weights[net_buffers_.weights_of.at(node.id).at(i)];
}

/// A matrix is due once all layers that share it have been backward with a window of microbatches.
void UpdateWriter::backward_done(const Node& node, int microbatches, TaskPlace place) {
  backward_done_[node.id] = microbatches;
  const std::vector<std::size_t>& of_node = net_buffers_.weights_of[node.id];
  for (const std::size_t w : std::set<std::size_t>(of_node.begin(), of_node.end())) {
    const std::vector<NodeId>& learners = learners_[w];
    if (learners.empty()) continue;
    int complete = graph_.microbatches;
    for (const NodeId user : learners) complete = std::min(complete, backward_done_[user]);
    const WeightBuffers& weights = net_buffers_.weights[w];
    const int window = update_window(graph_, graph_.nodes[weights.node], plan_.phase);
    int& updated = updated_[w];
    if (updated + window > complete) continue;
    std::int64_t images = 0;
    for (int m = updated; m < updated + window; ++m) images += graph_.images_of(plan_.images, m, plan_.views);
    updated += window;
    note(weights, images, place);
  }
}

/// Notes the steps that `w` has to make: what the replicas found is summed and applied to each shard where it
/// is owned, then everybody fetches the shards of the others.
void UpdateWriter::note(const WeightBuffers& w, std::int64_t images, TaskPlace place) {
  std::vector<BufferId> gradients;
  const TensorDesc layout = emitter_.buffer(w.weights[0]).desc;
  for (const BufferId id : w.weights) {
    const auto found = gradients_.find(id);
    if (found == gradients_.end()) continue;
    PlannedTensor& gradient = emitter_.tensor(found->second);
    place.device = gradient.device;
    gradients.push_back(emitter_.version(gradient, layout, place));
    gradients_.erase(found);
  }
  if (gradients.empty()) return;
  const Node& owner = graph_.nodes[w.node];
  for (const UpdateShard& shard : w.shards) {
    if (shard.count == 0) continue;
    Step step;
    step.node = w.node;
    step.device = owner.device(shard.replica);
    step.sums = w.weights.size() > 1;
    const bool accumulates = shard.accumulator.exists();
    step.part = {shard.count, images, w.rate_index, static_cast<int>(gradients.size()), accumulates};
    const auto range = [&](BufferId id, Access access) {
      return range_of(id, access, shard.begin, shard.count);
    };
    step.uses = {range(w.weights[static_cast<std::size_t>(shard.replica)], Access::read_write),
                 {shard.increment, Access::read_write}};
    for (const BufferId gradient : gradients) step.uses.push_back(range(gradient, Access::read));
    if (accumulates) step.uses.push_back({shard.accumulator, Access::read_write});
    steps_.push_back(std::move(step));
  }
  due_.push_back(&w);
  due_bytes_ += layout.bytes();
  if (due_bytes_ >= emitter_.target().joined_update_bytes()) flush(place);
}

void UpdateWriter::flush(TaskPlace place) {
  for (const DeviceId device : devices()) {
    place.device = device;
    for (const bool sums : {false, true}) make_steps(place, sums);
  }
  steps_.clear();
  due_bytes_ = 0;
  std::vector<FetchedRange> fetched;
  for (const WeightBuffers* w : std::exchange(due_, {})) {
    constrain(*w, place);
    for (std::size_t r = 0; r < w->weights.size(); ++r) {
      for (const UpdateShard& shard : w->shards) {
        if (shard.replica == static_cast<int>(r) || shard.count == 0) continue;
        const BufferId from = w->weights[static_cast<std::size_t>(shard.replica)];
        fetched.push_back({w->node, from, w->weights[r], shard.begin, shard.count});
      }
    }
    // Copies in other layouts or types are those of the old weights.
    for (const BufferId id : w->weights) emitter_.drop_copies(TaskEmitter::value_of(id));
  }
  publish(fetched, place);
}

/// The steps of place.device, of shared matrices or of those that it has alone, in one task.
void UpdateWriter::make_steps(TaskPlace place, bool sums) {
  Update op;
  std::vector<BufferUse> uses;
  std::set<NodeId> nodes;
  for (const Step& step : steps_) {
    if (step.device != place.device || step.sums != sums) continue;
    nodes.insert(step.node);
    op.parts.push_back(step.part);
    uses.insert(uses.end(), step.uses.begin(), step.uses.end());
  }
  if (op.parts.empty()) return;
  uses.push_back({step(place.device), Access::read});
  uses.push_back({broken(place.device, place), Access::read});
  uses.push_back({costs(place.device), Access::read_write});
  place.node = the_only(nodes);
  const bool beside = sums || emitter_.target().runs_streams_together();
  emitter_.emit_flat(place, sums ? TaskKind::reduce_update : TaskKind::update,
                     beside ? Stream::update : Stream::compute, op, std::move(uses));
}

/// Brings a matrix under its constraint after a step.
void UpdateWriter::constrain(const WeightBuffers& w, TaskPlace place) {
  const WeightConstraint& c = graph_.weight({w.node, w.index}).constraint;
  if (!c.acts() || plan_.phase != Phase::train) return;
  const UpdateShard& all = w.shards[0];
  place.node = w.node;
  place.device = graph_.nodes[w.node].device(all.replica);
  const bool accumulates = all.accumulator.exists();
  const BufferId replica = w.weights[static_cast<std::size_t>(all.replica)];
  const Constrain op{emitter_.buffer(replica).desc,
                     c.outer,
                     c.groups,
                     c.inner,
                     static_cast<float>(c.norm_min),
                     static_cast<float>(c.norm_max),
                     static_cast<float>(c.ball),
                     c.shrink,
                     accumulates,
                     w.rate_index};
  std::vector<Value> values = {TaskEmitter::value_of(replica)};
  if (accumulates) values.push_back(TaskEmitter::value_of(step(place.device)));
  Task& task = emitter_.emit(place, TaskKind::update, op, values);
  if (w.weights.size() > 1 || emitter_.target().runs_streams_together()) task.stream = Stream::update;
}

/// Ranges of matrices go from the replicas that made them to the others: one task for each device that
/// fetches.
void UpdateWriter::publish(const std::vector<FetchedRange>& ranges, TaskPlace place) {
  struct Fetch {
    CopyRuns op;
    std::vector<BufferUse> reads, writes;
    std::set<NodeId> nodes;
  };
  std::map<DeviceId, Fetch> fetches;
  for (const FetchedRange& range : ranges) {
    Fetch& fetch = fetches[emitter_.buffer(range.to).device];
    fetch.nodes.insert(range.node);
    fetch.op.counts.push_back(range.count);
    fetch.reads.push_back(range_of(range.from, Access::read, range.begin, range.count));
    fetch.writes.push_back(range_of(range.to, Access::write, range.begin, range.count));
  }
  for (auto& [device, fetch] : fetches) {
    place.device = device;
    place.node = the_only(fetch.nodes);
    std::vector<BufferUse> uses = std::move(fetch.reads);
    uses.insert(uses.end(), fetch.writes.begin(), fetch.writes.end());
    emitter_.emit_flat(place, TaskKind::publish, Stream::update, fetch.op, std::move(uses));
  }
}

void UpdateWriter::publish_state(const Node& node, TaskPlace place) {
  std::vector<FetchedRange> ranges;
  for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
    if (!node.layer->weights[i].state) continue;
    const std::vector<BufferId>& replicas = weights(node, i).weights;
    const std::int64_t floats = emitter_.buffer(replicas[0]).bytes / size_of(DataType::f32);
    for (std::size_t r = 1; r < replicas.size(); ++r)
      ranges.push_back({node.id, replicas[0], replicas[r], 0, floats});
  }
  publish(ranges, place);
}

/// The buffer that says on a device whether a cost was broken up to this pass, on any device.
BufferId UpdateWriter::broken(DeviceId device, TaskPlace place) {
  const int count = static_cast<int>(net_buffers_.costs.size());
  if (count == 1) return costs(device);
  if (broken_.empty()) {
    for (const DeviceId d : devices()) {
      PlannedTensor t;
      t.name = "broken";
      t.kind = BufferKind::workspace;
      t.device = d;
      t.dims = {1};
      t.type = DataType::f64;
      const Value flag = emitter_.add(std::move(t));
      std::vector<Value> values;
      for (const BufferId other : net_buffers_.costs) values.push_back(TaskEmitter::value_of(other));
      values.push_back(flag);
      emitter_.emit_across({NodeId(), 0, place.pass, d}, TaskKind::reduce, AnyBroken{count}, values);
      broken_.push_back(emitter_.tensor(flag).buffer);
    }
  }
  return broken_[device];
}

}  // namespace convnet
