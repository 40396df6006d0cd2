#include "convnet/plan/updates.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace convnet {
namespace {

/// Elements [begin, begin + count) of a buffer.
BufferUse range_of(BufferId id, Access access, std::int64_t begin, std::int64_t count,
                   DataType type = DataType::f32) {
  const auto size = size_of(type);
  return {id, access, 0, begin * size, count * size};
}

/// The layer that a task is for; none if there are several.
NodeId the_only(const std::set<NodeId>& nodes) { return nodes.size() == 1 ? *nodes.begin() : NodeId(); }

}  // namespace

UpdateWriter::UpdateWriter(const Graph& graph, const NetBuffers& net_buffers, const Plan& plan, bool clips,
                           TaskEmitter& emitter)
    : graph_(graph),
      net_buffers_(net_buffers),
      plan_(plan),
      clips_(clips && plan.phase == Phase::train),
      joins_norms_(clips_ || scales_parts()),
      emitter_(emitter),
      backward_done_(graph.nodes.size(), 0),
      updated_(net_buffers.weights.size(), 0) {
  for (const WeightBuffers& w : net_buffers.weights)
    learners_.push_back(graph.gradient_sources({w.node, w.index}));
}

/// Returns whether LARS scales a matrix that is divided into parts.
bool UpdateWriter::scales_parts() const {
  return plan_.phase == Phase::train &&
         std::any_of(net_buffers_.weights.begin(), net_buffers_.weights.end(), [&](const WeightBuffers& w) {
           const bool part = graph_.nodes[w.node].division.whole != nullptr;
           return part && graph_.weight({w.node, w.index}).learning.trust > 0;
         });
}

const WeightBuffers& UpdateWriter::weights(const Node& node, std::size_t i) const {
  return net_buffers_.weights[net_buffers_.weights_of.at(node.id).at(i)];
}

/// A matrix is due once all layers that share it have run backward for all microbatches of an update.
void UpdateWriter::backward_done(const Node& node, int microbatches, TaskPlace place) {
  backward_done_[node.id] = microbatches;
  const std::vector<std::size_t>& of_node = net_buffers_.weights_of[node.id];
  for (const std::size_t w : std::set<std::size_t>(of_node.begin(), of_node.end())) {
    const std::vector<NodeId>& learners = learners_[w];
    if (learners.empty()) continue;
    int complete = graph_.microbatches;
    for (const NodeId user : learners) complete = std::min(complete, backward_done_[user]);
    const WeightBuffers& weights = net_buffers_.weights[w];
    const int window = microbatches_per_update(graph_, graph_.nodes[weights.node], plan_.phase);
    int& updated = updated_[w];
    if (updated + window > complete) continue;
    std::int64_t images = 0;
    for (int m = updated; m < updated + window; ++m) images += graph_.images_of(plan_.images, m, plan_.views);
    updated += window;
    add_due_update(w, images, (updated / window - 1) % weights.rates, place);
  }
}

/// Records the update of matrix `matrix`: each owner of a shard sums the gradients of the replicas and
/// updates its shard, then every replica fetches the shards of the others. `update` is the number of the
/// update within the minibatch, if each has its own rates.
void UpdateWriter::add_due_update(std::size_t matrix, std::int64_t images, int update, TaskPlace place) {
  const WeightBuffers& w = net_buffers_.weights[matrix];
  std::vector<BufferId> gradients;  // by replica; none for a replica that had no images
  bool any = false;
  const TensorDesc layout = emitter_.buffer(w.weights[0]).desc;
  const Node& owner = graph_.nodes[w.node];
  const LearningParams& learning = graph_.weight({w.node, w.index}).learning;
  // Gradient checks read the gradient from the increment of plain momentum.
  const bool plain = plan_.phase == Phase::check;
  const bool scaled = clips_ || (learning.trust > 0 && !plain);
  const DataType type = gradient_type(w, scaled);
  for (const BufferId id : w.weights) {
    gradients.emplace_back();
    const auto found = gradients_.find(id);
    if (found == gradients_.end()) continue;
    PlannedTensor& gradient = emitter_.tensor(found->second);
    place.device = gradient.device;
    gradients.back() = emitter_.version(gradient, with_type(layout, type), place);
    gradients_.erase(found);
    any = true;
  }
  if (!any) return;
  const std::vector<std::vector<BufferUse>> added = summands(w, gradients, type);
  for (std::size_t s = 0; s < w.shards.size(); ++s) {
    const UpdateShard& shard = w.shards[s];
    if (shard.count == 0) continue;
    Step step;
    step.node = w.node;
    step.device = owner.device(shard.owner());
    step.sums = w.weights.size() > 1;
    step.matrix = matrix;
    step.scaled = scaled;
    const bool accumulates = shard.accumulator.exists();
    step.part = {.count = shard.count,
                 .images = images,
                 .rate_index = w.rate_index + update,
                 .gradients = static_cast<int>(added[s].size()),
                 .accumulates = accumulates,
                 .rule = plain ? UpdateRule::momentum : learning.rule(),
                 .rounds = !w.rounded.empty(),
                 .gradient_type = type};
    step.weights = range_of(w.weights[static_cast<std::size_t>(shard.owner())], Access::read_write,
                            shard.begin, shard.count);
    step.increment = {shard.increment, Access::read_write};
    step.gradients = added[s];
    if (accumulates) step.kept.push_back({shard.accumulator, Access::read_write});
    if (keeps_squares(step.part.rule)) step.kept.push_back({shard.squares, Access::read_write});
    if (step.part.rounds)
      step.kept.push_back(range_of(w.rounded[static_cast<std::size_t>(shard.owner())], Access::read_write,
                                   shard.begin, shard.count, DataType::bf16));
    steps_.push_back(std::move(step));
  }
  due_.push_back(&w);
  due_bytes_ += layout.bytes();
  if (due_bytes_ >= emitter_.target().joined_update_bytes() && !joins_norms_) flush(place);
}

/// Returns the type in which an update reads the gradients of `w`: bf16 if all replicas have made such, and
/// nothing else sums them first. `scaled` says whether the step needs norms.
DataType UpdateWriter::gradient_type(const WeightBuffers& w, bool scaled) {
  if (w.weights.size() > 1 && (scaled || exchange_of(w).stages() > 1)) return DataType::f32;
  for (const BufferId id : w.weights) {
    const auto found = gradients_.find(id);
    if (found == gradients_.end()) continue;
    const PlannedTensor& gradient = emitter_.tensor(found->second);
    if (emitter_.buffer(gradient.buffer).desc.type != DataType::bf16) return DataType::f32;
  }
  return DataType::bf16;
}

/// Returns for each shard the gradients, of type `type`, that its update adds up: those of the replicas, or
/// what the last stage of their exchange brings.
std::vector<std::vector<BufferUse>> UpdateWriter::summands(const WeightBuffers& w,
                                                           const std::vector<BufferId>& gradients,
                                                           DataType type) {
  const Exchange& exchange = exchange_of(w);
  std::vector<std::vector<Partial>> partials;
  for (const UpdateShard& shard : w.shards) {
    partials.emplace_back();
    for (std::size_t r = 0; r < gradients.size(); ++r) {
      if (gradients[r].exists())
        partials.back().push_back(
            {static_cast<int>(r), range_of(gradients[r], Access::read, shard.begin, shard.count, type)});
    }
  }
  for (int stage = 0; stage + 1 < exchange.stages(); ++stage) sum_stage(w, exchange, stage, partials);
  std::vector<std::vector<BufferUse>> of_shards;
  for (const std::vector<Partial>& of_shard : partials) {
    of_shards.emplace_back();
    for (const Partial& partial : of_shard) of_shards.back().push_back(partial.sum);
  }
  return of_shards;
}

/// Records the sums of a stage: each receiver adds what it gets to its own, in the order of members. Ranges
/// that follow each other in all summands are one run.
void UpdateWriter::sum_stage(const WeightBuffers& w, const Exchange& exchange, int stage,
                             std::vector<std::vector<Partial>>& of_shards) {
  struct Sum {
    std::size_t shard;
    std::vector<BufferUse> from;
  };
  std::map<int, std::vector<Sum>> sums_of;  // by receiver
  for (std::size_t s = 0; s < of_shards.size(); ++s) {
    if (w.shards[s].count == 0) continue;
    std::map<int, std::vector<Partial>> received;
    for (const Partial& partial : of_shards[s]) {
      const Exchange::Hop hop = exchange.hop(partial.member, w.shards[s].share);
      received[hop.stage == stage ? hop.receiver : partial.member].push_back(partial);
    }
    of_shards[s].clear();
    for (const auto& [receiver, partials] : received) {
      if (partials.size() == 1) {
        of_shards[s].push_back(partials[0]);
        continue;
      }
      sums_of[receiver].push_back({s, {}});
      for (const Partial& partial : partials) sums_of[receiver].back().from.push_back(partial.sum);
    }
  }
  for (const auto& [receiver, sums] : sums_of) {
    std::int64_t floats = 0;
    for (const Sum& sum : sums) floats += w.shards[sum.shard].count;
    const DeviceId device = graph_.nodes[w.node].device(receiver);
    const BufferId buffer = emitter_.add_buffer("partial d " + w.name, BufferKind::weights_gradient, device,
                                                {{floats}, DataType::f32, nullptr});
    emitter_.buffer(buffer).node = w.node;
    emitter_.buffer(buffer).index = w.index;
    PartialSums& task = partial_sums_[{stage, device}];
    task.nodes.insert(w.node);
    std::int64_t at = 0;  // floats of the sums so far
    for (const Sum& sum : sums) {
      const std::int64_t count = w.shards[sum.shard].count;
      const BufferUse made = range_of(buffer, Access::write, at, count);
      const auto first =
          task.uses.end() - static_cast<std::ptrdiff_t>(at == 0 ? 0 : 1 + task.op.runs.back().sources);
      const auto follows = [](const BufferUse& before, const BufferUse& use) {
        return before.buffer == use.buffer && before.begin + before.bytes == use.begin;
      };
      if (at > 0 && std::equal(first + 1, task.uses.end(), sum.from.begin(), sum.from.end(), follows)) {
        for (auto use = first; use != task.uses.end(); ++use) use->bytes += made.bytes;
        task.op.runs.back().count += count;
      } else {
        task.op.runs.push_back({count, static_cast<int>(sum.from.size())});
        task.uses.push_back(made);
        task.uses.insert(task.uses.end(), sum.from.begin(), sum.from.end());
      }
      of_shards[sum.shard].push_back({receiver, range_of(buffer, Access::read, at, count)});
      at += count;
    }
  }
  for (std::vector<Partial>& partials : of_shards)
    std::sort(partials.begin(), partials.end(),
              [](const Partial& a, const Partial& b) { return a.member < b.member; });
}

void UpdateWriter::flush(TaskPlace place) {
  make_partial_sums(place);
  sum_gradients(place);
  make_scales(place);
  for (const DeviceId device : devices()) {
    place.device = device;
    for (const bool sums : {false, true}) make_steps(place, sums);
  }
  steps_.clear();
  due_bytes_ = 0;
  Fetches fetches;
  for (const WeightBuffers* w : std::exchange(due_, {})) {
    constrain(*w, place);
    add_fetches(*w, w->shards, fetches);
    // Copies that were converted from the old weights are out of date.
    for (const BufferId id : w->weights) emitter_.drop_old_copies(TaskEmitter::value_of(id));
  }
  all_gather(fetches, place);
}

/// Emits the sums before the last stage, in one task for each device and stage.
void UpdateWriter::make_partial_sums(TaskPlace place) {
  for (auto& [stage_and_device, sums] : std::exchange(partial_sums_, {})) {
    place.device = stage_and_device.second;
    place.node = the_only(sums.nodes);
    emitter_.emit_flat(place, TaskKind::reduce, Stream::update, sums.op, std::move(sums.uses));
  }
}

/// Sums the gradients of the steps that need norms, in one task for each device that sums.
void UpdateWriter::sum_gradients(TaskPlace place) {
  for (const DeviceId device : devices()) {
    SumRuns op;
    std::vector<BufferUse> uses;
    std::set<NodeId> nodes;
    for (Step& step : steps_) {
      if (step.device != device || !step.scaled || !step.sums) continue;
      const BufferId sum =
          emitter_.add_buffer("sum d " + net_buffers_.weights[step.matrix].name, BufferKind::weights_gradient,
                              device, {{step.part.count}, DataType::f32, nullptr});
      emitter_.buffer(sum).node = step.node;
      emitter_.buffer(sum).index = net_buffers_.weights[step.matrix].index;
      op.runs.push_back({step.part.count, step.part.gradients});
      uses.push_back({sum, Access::write});
      uses.insert(uses.end(), step.gradients.begin(), step.gradients.end());
      nodes.insert(step.node);
      step.gradients = {{sum, Access::read}};
      step.part.gradients = 1;
      step.sums = false;
    }
    if (op.runs.empty()) continue;
    place.device = device;
    place.node = the_only(nodes);
    emitter_.emit_flat(place, TaskKind::reduce, Stream::update, op, std::move(uses));
  }
}

/// Makes the factors of the steps that need norms: each device sums the squares of its shards, the first one
/// makes the factors of all of them, and every device fetches these.
void UpdateWriter::make_scales(TaskPlace place) {
  place.node = NodeId();
  scales_.clear();
  scale_count_ = 0;
  UpdateScales scales;
  std::vector<BufferUse> sources;
  std::map<std::pair<std::string, std::size_t>, int> matrices;  // parts of a layer (parallel=model) are one
  for (const DeviceId device : devices()) {
    UpdateSquares op;
    std::vector<BufferUse> uses;
    for (Step& step : steps_) {
      if (step.device != device || !step.scaled) continue;
      const Update::Part& part = step.part;
      op.parts.push_back({part.count, part.accumulates, part.gradient_type});
      for (BufferUse use : {step.weights, step.gradients[0]}) {
        use.access = Access::read;
        uses.push_back(use);
      }
      if (part.accumulates) uses.push_back({step.kept[0].buffer, Access::read});
      const WeightBuffers& w = net_buffers_.weights[step.matrix];
      const int matrix =
          matrices.try_emplace({graph_.nodes[w.node].layer_name, w.index}, static_cast<int>(matrices.size()))
              .first->second;
      scales.parts.push_back({matrix, part.images, part.rate_index, part.accumulates});
      step.part.scale_index = scale_count_++;
    }
    if (op.parts.empty()) continue;
    place.device = device;
    scales.sources.push_back(std::ssize(op.parts));
    const BufferId squares = emitter_.add_buffer("squares", BufferKind::workspace, device,
                                                 {{2 * std::ssize(op.parts)}, DataType::f64, nullptr});
    uses.push_back({squares, Access::write});
    sources.push_back({squares, Access::read});
    emitter_.emit_flat(place, TaskKind::update, update_stream(false), op, std::move(uses));
  }
  if (scale_count_ == 0) return;
  const auto add_scales = [&](DeviceId device) {
    return emitter_.add_buffer("scales", BufferKind::workspace, device,
                               {{2 * scale_count_}, DataType::f32, nullptr});
  };
  const DeviceId first(0);
  place.device = first;
  scales_.assign(net_buffers_.costs.size(), add_scales(first));
  sources.push_back({step(first), Access::read});
  sources.push_back({scales_[first], Access::write});
  emitter_.emit_flat(place, TaskKind::reduce, Stream::update, scales, std::move(sources));
  for (const DeviceId device : devices()) {
    if (device == first) continue;
    place.device = device;
    scales_[device] = add_scales(device);
    emitter_.emit_flat(place, TaskKind::copy, Stream::copy, CopyRuns{{{2 * scale_count_}}},
                       {{scales_[first], Access::read}, {scales_[device], Access::write}});
  }
}

/// Emits one task with the steps of place.device: those that sum gradients of other replicas, or the others.
void UpdateWriter::make_steps(TaskPlace place, bool sums) {
  Update op;
  std::vector<BufferUse> uses;
  std::set<NodeId> nodes;
  for (const Step& step : steps_) {
    if (step.device != place.device || step.sums != sums) continue;
    nodes.insert(step.node);
    op.parts.push_back(step.part);
    if (step.scaled) op.scales = scale_count_;
    uses.push_back(step.weights);
    uses.push_back(step.increment);
    uses.insert(uses.end(), step.gradients.begin(), step.gradients.end());
    uses.insert(uses.end(), step.kept.begin(), step.kept.end());
  }
  if (op.parts.empty()) return;
  if (op.scales > 0) uses.push_back({scales_[place.device], Access::read});
  uses.push_back({step(place.device), Access::read});
  uses.push_back({non_finite_flag(place.device, place), Access::read});
  uses.push_back({costs(place.device), Access::read_write});
  place.node = the_only(nodes);
  emitter_.emit_flat(place, sums ? TaskKind::reduce_scatter_update : TaskKind::update, update_stream(sums),
                     op, std::move(uses));
}

/// Returns the stream of updates: of those that sum gradients of other replicas, or of the others.
Stream UpdateWriter::update_stream(bool sums) const {
  return sums || emitter_.target().runs_streams_together() ? Stream::update : Stream::compute;
}

void UpdateWriter::average(TaskPlace place) {
  place.node = NodeId();
  for (const DeviceId device : devices()) {
    Average op;
    std::vector<BufferUse> uses;
    for (const WeightBuffers& w : net_buffers_.weights) {
      for (const AverageShard& shard : w.averages) {
        if (graph_.nodes[w.node].device(shard.replica) != device || shard.count == 0) continue;
        op.counts.push_back(shard.count);
        uses.push_back(range_of(w.weights[static_cast<std::size_t>(shard.replica)], Access::read, shard.begin,
                                shard.count));
        uses.push_back({shard.average, Access::read_write});
      }
    }
    if (op.counts.empty()) continue;
    uses.push_back({step(device), Access::read});
    place.device = device;
    emitter_.emit_flat(place, TaskKind::update, update_stream(false), op, std::move(uses));
  }
}

/// Applies the constraint of a matrix after its update.
void UpdateWriter::constrain(const WeightBuffers& w, TaskPlace place) {
  const WeightConstraint& c = graph_.weight({w.node, w.index}).constraint;
  if (!c.acts() || plan_.phase != Phase::train) return;
  const UpdateShard& all = w.shards[0];
  place.node = w.node;
  place.device = graph_.nodes[w.node].device(all.owner());
  const bool accumulates = all.accumulator.exists();
  const BufferId replica = w.weights[static_cast<std::size_t>(all.owner())];
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

/// Adds the ranges of `shards` that the replicas of `w` fetch, the way of the sums back.
void UpdateWriter::add_fetches(const WeightBuffers& w, const std::vector<UpdateShard>& shards,
                               Fetches& fetches) const {
  const Exchange& exchange = exchange_of(w);
  for (int replica = 0; replica < graph_.nodes[w.node].replicas(); ++replica) {
    for (const UpdateShard& shard : shards) {
      if (shard.owner() == replica || shard.count == 0) continue;
      const Exchange::Hop hop = exchange.hop(replica, shard.share);
      const BufferId from = w.weights[static_cast<std::size_t>(hop.receiver)];
      const BufferId to = w.weights[static_cast<std::size_t>(replica)];
      const BufferId rounded = w.rounded.empty() ? BufferId() : w.rounded[static_cast<std::size_t>(replica)];
      std::vector<FetchedRange>& ranges = fetches[hop.stage];
      const bool goes_on = !ranges.empty() && ranges.back().from == from && ranges.back().to == to &&
                           ranges.back().begin + ranges.back().count == shard.begin;
      if (goes_on)
        ranges.back().count += shard.count;
      else
        ranges.push_back({w.node, from, to, rounded, shard.begin, shard.count});
    }
  }
}

/// Emits the copies of ranges from the replicas that have them to the others, in one task for each device and
/// stage.
void UpdateWriter::all_gather(const Fetches& stages, TaskPlace place) {
  struct Fetch {
    CopyRuns op;
    std::vector<BufferUse> reads, writes, rounded;
    std::set<NodeId> nodes;
  };
  for (const auto& [stage, ranges] : stages) {
    std::map<DeviceId, Fetch> fetches;
    for (const FetchedRange& range : ranges) {
      Fetch& fetch = fetches[emitter_.buffer(range.to).device];
      fetch.nodes.insert(range.node);
      fetch.op.runs.push_back({range.count, range.rounded.exists()});
      fetch.reads.push_back(range_of(range.from, Access::read, range.begin, range.count));
      fetch.writes.push_back(range_of(range.to, Access::write, range.begin, range.count));
      if (range.rounded.exists())
        fetch.rounded.push_back(
            range_of(range.rounded, Access::write, range.begin, range.count, DataType::bf16));
    }
    for (auto& [device, fetch] : fetches) {
      place.device = device;
      place.node = the_only(fetch.nodes);
      std::vector<BufferUse> uses = std::move(fetch.reads);
      uses.insert(uses.end(), fetch.writes.begin(), fetch.writes.end());
      uses.insert(uses.end(), fetch.rounded.begin(), fetch.rounded.end());
      emitter_.emit_flat(place, TaskKind::all_gather, Stream::update, fetch.op, std::move(uses));
    }
  }
}

void UpdateWriter::broadcast_state(const Node& node, int from, TaskPlace place) {
  Fetches fetches;
  for (std::size_t i = 0; i < node.layer->weights.size(); ++i) {
    if (!node.layer->weights[i].state) continue;
    const WeightBuffers& w = weights(node, i);
    UpdateShard whole;
    whole.share = exchange_of(w).whole(from);
    whole.count = emitter_.buffer(w.weights[0]).bytes / size_of(DataType::f32);
    add_fetches(w, {whole}, fetches);
  }
  all_gather(fetches, place);
}

/// Returns the buffer on a device that says whether a cost of any device was not finite up to this pass.
BufferId UpdateWriter::non_finite_flag(DeviceId device, TaskPlace place) {
  if (net_buffers_.costs.size() == 1) return costs(device);
  if (non_finite_.empty()) combine_non_finite_flags(place);
  return non_finite_[device];
}

/// Devices of a single group all read from each other. Otherwise the flags go to the first device, and come
/// back, as sums do.
void UpdateWriter::combine_non_finite_flags(TaskPlace place) {
  const std::vector<DeviceId> all(devices().begin(), devices().end());
  const Exchange& exchange = emitter_.exchange(all);
  const Exchange::Share of_first = exchange.whole(0);
  const auto count = static_cast<int>(all.size());
  const auto device = [&](int member) { return all[static_cast<std::size_t>(member)]; };
  std::vector<BufferId> flags;  // by member
  for (const DeviceId d : all) flags.push_back(costs(d));
  const auto flag = [&](int member) -> BufferId& { return flags[static_cast<std::size_t>(member)]; };
  if (exchange.stages() == 1) {
    for (const DeviceId d : all) non_finite_.push_back(any_non_finite(flags, d, place));
    return;
  }
  for (int stage = 0; stage < exchange.stages(); ++stage) {
    for (const auto& [receiver, senders] : exchange.sums(stage, of_first)) {
      std::vector<BufferId> read;
      for (const int sender : senders) read.push_back(flag(sender));
      flag(receiver) = any_non_finite(read, device(receiver), place);
    }
  }
  for (int stage = exchange.stages() - 1; stage >= 0; --stage) {
    for (int member = 0; member < count; ++member) {
      const Exchange::Hop hop = exchange.hop(member, of_first);
      if (hop.stage == stage) flag(member) = any_non_finite({flag(hop.receiver)}, device(member), place);
    }
  }
  non_finite_.assign(flags.begin(), flags.end());
}

/// Returns a new buffer on `device` that says whether any of the flags is set.
BufferId UpdateWriter::any_non_finite(const std::vector<BufferId>& flags, DeviceId device, TaskPlace place) {
  std::vector<BufferUse> uses;
  for (const BufferId flag : flags) uses.push_back({flag, Access::read});
  uses.push_back(
      {emitter_.add_buffer("non_finite", BufferKind::workspace, device, {{1}, DataType::f64, nullptr}),
       Access::write});
  const BufferId result = uses.back().buffer;
  emitter_.emit_flat({NodeId(), 0, place.pass, device}, TaskKind::reduce, Stream::copy,
                     AnyNonFinite{std::ssize(flags)}, std::move(uses));
  return result;
}

}  // namespace convnet
