// Walks the layers of a graph and implements the Lowering that they write to.
#include "convnet/plan/build.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/philox.h"
#include "convnet/graph/schedule.h"
#include "convnet/plan/fetch_ahead.h"
#include "convnet/plan/fusion.h"
#include "convnet/plan/order.h"
#include "convnet/plan/split.h"

namespace convnet {
namespace {

Plan empty_plan(const NetBuffers& net_buffers, std::size_t matrices, const Target& target, Phase phase,
                std::int64_t images, const PlanOptions& options) {
  Plan plan;
  plan.target = target.name();
  plan.precision = target.precision();
  plan.phase = phase;
  plan.images = images;
  plan.topology = options.topology;
  plan.views = phase == Phase::test ? options.views : 1;
  if (images % plan.views != 0) throw std::logic_error("plan: images that are not whole views");
  plan.buffers = net_buffers.buffers;
  plan.costs = net_buffers.cost_slots;
  plan.inputs.assign(matrices, BufferId());
  return plan;
}

}  // namespace

PlanBuilder::PlanBuilder(const Graph& graph, const std::vector<MatrixInfo>& matrices, const Target& target,
                         const PlanOptions& options, const NetBuffers& net_buffers, Phase phase,
                         std::int64_t images)
    : graph_(graph),
      matrices_(matrices),
      options_(options),
      net_buffers_(net_buffers),
      plan_(empty_plan(net_buffers, matrices.size(), target, phase, images, options)),
      emitter_(plan_, target, options.routes, graph.per_replica > 1),
      gradients_(graph, emitter_),
      updates_(graph, net_buffers, plan_, options.clips, emitter_),
      states_(graph.nodes.size(), std::vector<NodeState>(static_cast<std::size_t>(graph.microbatches))),
      users_done_(graph.nodes.size(), std::vector<int>(static_cast<std::size_t>(graph.microbatches), 0)) {
  for (const WeightBuffers& w : net_buffers.weights) {
    for (std::size_t r = 0; r < w.rounded.size(); ++r)
      emitter_.add_lasting_copy(TaskEmitter::value_of(w.weights[r]), w.rounded[r]);
  }
  for (int m = 0; m < graph.microbatches; ++m) images_.push_back(graph.images_of(images, m, plan_.views));
}

/// Calls `work`, which emits operations of layers. If the target cannot do one of them, its error gets the
/// layer's name.
template <class Work>
void PlanBuilder::naming_layer(const Work& work) {
  try {
    work();
  } catch (const DeviceError& e) {
    throw DeviceError(at_.node->place_text() + ": " + e.what());
  }
}

Plan PlanBuilder::build() {
  for (const DeviceId device : IdRange<DeviceId>(graph_.gpu_count())) {
    at_.device = device;
    emitter_.emit(place(), TaskKind::zero, FillZero{emitter_.buffer(net_buffers_.costs[device]).desc},
                  {costs()});
  }
  for (const ScheduledRun& next : make_schedule(graph_)) {
    pass_ = next.pass;
    if (next.kind == RunKind::update) {
      if (training()) updates_.end_pass(place());
      continue;
    }
    const Node& node = graph_.nodes[next.node];
    if (next.kind == RunKind::forward)
      naming_layer([&] { forward_run(node, next.run); });
    else if (training() && node.gets_gradient)
      naming_layer([&] { backward_run(node, next.run); });
  }
  if (random()) updates_.average(place());  // once a minibatch, however many passes it has
  // Tests read outputs of layers, and gradient checks compare operations one by one.
  if (random() && graph_.in_place) fuse_tasks(plan_, graph_, emitter_.target());
  if (options_.routes == Routes::relayed) fetch_ahead(plan_);
  split_between_processes(plan_);
  find_dependencies(plan_);
  for (Task& task : plan_.tasks) {
    for (const BufferUse& use : task.uses) task.bytes += bytes_of(plan_, use);
  }
  return std::move(plan_);
}

// --- Lowering -----------------------------------------------------------------------------------

Microbatch PlanBuilder::facts_of(const Node& node, int microbatch) const {
  Microbatch facts;
  facts.images = images_[static_cast<std::size_t>(microbatch)];
  facts.first_image = graph_.first_image(plan_.images, microbatch, plan_.views);
  facts.views = plan_.views;
  facts.training = training();
  facts.random = random();
  facts.fused = node.fused;
  if (node.fused && node.layer->facts.fuses_neuron != FusesNeuron::no)
    facts.neuron = graph_.nodes[node.users[0]].layer->facts.neuron;
  facts.input_differentiates =
      !node.inputs.empty() && fuses_gradient(graph_.nodes[node.inputs[0]].layer->facts.fuses_neuron);
  facts.random_key = philox_key(options_.seed, node.layer_name);
  const auto own = images_.begin() + microbatch;
  facts.first_replica = std::all_of(own - microbatch % node.replicas(), own, [](auto n) { return n == 0; });
  return facts;
}

Value PlanBuilder::output() {
  NodeState& s = state(at_.node->id);
  if (!s.output.exists()) set_output(in_place_output());
  return output_of(at_.node->id);
}

bool PlanBuilder::wants_input_gradient(std::size_t i) const {
  return graph_.nodes[at_.node->inputs[i]].gets_gradient;
}

Value PlanBuilder::input_gradient(std::size_t i) {
  // A cost has no output gradient to overwrite.
  const Value own = output_gradient();
  const NodeId self = at_.node->id;
  const bool in_place = at_.node->layer->facts.backward_in_place && i == 0 && own.exists() &&
                        emitter_.tensor(own).device == at_.device &&
                        !gradients_.is_shared(own, at_.microbatch, self, self);
  const NodeId input = at_.node->inputs[i];
  const Value written = in_place ? own
                                 : emitter_.add_like(state(input).output, "d " + graph_.nodes[input].name,
                                                     BufferKind::gradient, at_.device);
  gradients_.contribute(input, at_.microbatch, home(input), written);
  return written;
}

BufferId PlanBuilder::weights_buffer(std::size_t i) const {
  const auto replica = static_cast<std::size_t>(at_.microbatch % at_.node->replicas());
  return updates_.weights(*at_.node, i).weights[replica];
}

Value PlanBuilder::weights(std::size_t i) { return TaskEmitter::value_of(weights_buffer(i)); }

/// Each user of shared weights and each microbatch writes a gradient of its own; they are summed in the order
/// of the backward passes.
Value PlanBuilder::weights_gradient(std::size_t i) {
  const Value written = emitter_.add_like(weights(i), "d " + updates_.weights(*at_.node, i).name,
                                          BufferKind::weights_gradient, at_.device);
  // An unwanted gradient is dropped.
  if (wants_weights_gradient(i))
    gradients_.contribute_to_weights(written, updates_.gradient(weights_buffer(i)));
  return written;
}

Value PlanBuilder::kept(const std::string& name, const Dims& dims, DataType type) {
  Value& value = state(at_.node->id).kept[name];
  if (!value.exists()) {
    PlannedTensor t;
    t.name = at_.node->name + "." + name;
    t.device = at_.device;
    t.dims = dims;
    t.type = type;
    value = emitter_.add(std::move(t));
  }
  return value;
}

void PlanBuilder::keep(const std::string& name, Value value) { state(at_.node->id).kept[name] = value; }

std::vector<int> PlanBuilder::microbatches_of_run(const Node& node, int run) const {
  std::vector<int> microbatches;
  for (int m = run * node.replicas(); m < (run + 1) * node.replicas(); ++m) {
    if (images_[static_cast<std::size_t>(m)] > 0) microbatches.push_back(m);
  }
  return microbatches;
}

std::vector<int> PlanBuilder::microbatches_of_this_run() const {
  return microbatches_of_run(*at_.node, at_.microbatch / at_.node->replicas());
}

/// Replicas of a single group all merge, which saves a copy. Otherwise the statistics go to the first
/// replica, and come back, as sums of gradients do.
void PlanBuilder::merge_replicas(const std::vector<std::string>& from, const std::vector<std::string>& into,
                                 const Dims& dims, const Merge& merge) {
  const std::vector<int> microbatches = microbatches_of_this_run();
  std::vector<DeviceId> devices;
  for (const int m : microbatches) devices.push_back(at_.node->device(m));
  const Exchange& exchange = emitter_.exchange(devices);
  if (exchange.stages() == 1) return merge_kept(microbatches, from, into, dims, merge);
  const Merging all{exchange, exchange.whole(0), microbatches, from, into, dims, merge};
  const auto own = std::find(microbatches.begin(), microbatches.end(), at_.microbatch) - microbatches.begin();
  bring_merged(all, static_cast<int>(own));
}

/// Merges the statistics that the replicas of these microbatches keep. The replica whose operations are being
/// written down keeps the result.
void PlanBuilder::merge_kept(const std::vector<int>& microbatches, const std::vector<std::string>& from,
                             const std::vector<std::string>& into, const Dims& dims, const Merge& merge) {
  std::vector<Statistics> parts;
  for (const int m : microbatches) {
    parts.push_back({images_[static_cast<std::size_t>(m)], {}});
    for (const std::string& name : from) parts.back().values.push_back(kept_by(m, name));
  }
  merge(parts, kept_as(into, dims));
}

/// Makes a member of an exchange keep the statistics of all, unless it does already.
void PlanBuilder::bring_merged(const Merging& all, int member) {
  const int microbatch = all.microbatches[static_cast<std::size_t>(member)];
  if (states_[at_.node->id][static_cast<std::size_t>(microbatch)].kept.contains(all.into[0])) return;
  const Exchange::Hop hop = all.exchange.hop(member, all.share);
  const bool owner = hop.stage == all.exchange.stages();
  std::vector<Value> values;
  if (owner) {
    values = merged_by_stage(all, all.exchange.stages() - 1, member).values;
  } else {
    bring_merged(all, hop.receiver);
    for (const std::string& name : all.into)
      values.push_back(kept_by(all.microbatches[static_cast<std::size_t>(hop.receiver)], name));
  }
  const At asking = at_;
  at_.microbatch = microbatch;
  at_.device = at_.node->device(microbatch);
  for (std::size_t i = 0; i < values.size(); ++i)
    keep(all.into[i], owner ? values[i] : emitter_.fetched(values[i], place()));
  at_ = asking;
}

/// Returns the statistics that a member has after a stage. The first call writes down how it merges them.
PlanBuilder::Statistics PlanBuilder::merged_by_stage(const Merging& all, int stage, int member) {
  const int microbatch = all.microbatches[static_cast<std::size_t>(member)];
  if (stage < 0) {
    Statistics own{images_[static_cast<std::size_t>(microbatch)], {}};
    for (const std::string& name : all.from) own.values.push_back(kept_by(microbatch, name));
    return own;
  }
  std::vector<Statistics> parts;
  for (const int sender : all.exchange.senders(stage, member, all.share))
    parts.push_back(merged_by_stage(all, stage - 1, sender));
  if (parts.size() == 1) return parts[0];
  Statistics merged;
  for (const Statistics& part : parts) merged.images += part.images;
  std::vector<std::string> names = all.from;
  for (std::string& name : names) name = "stage " + std::to_string(stage) + "'s " + name;
  const At asking = at_;
  at_.microbatch = microbatch;
  at_.device = at_.node->device(microbatch);
  merged.values = kept_as(names, all.dims);
  all.merge(parts, merged.values);
  at_ = asking;
  return merged;
}

std::vector<Value> PlanBuilder::kept_as(const std::vector<std::string>& names, const Dims& dims) {
  std::vector<Value> values;
  for (const std::string& name : names) values.push_back(kept(name, dims, DataType::f32));
  return values;
}

Value PlanBuilder::kept_by(int microbatch, const std::string& name) const {
  return states_[at_.node->id][static_cast<std::size_t>(microbatch)].kept.at(name);
}

std::vector<std::int64_t> PlanBuilder::images_of_replicas() const {
  std::vector<std::int64_t> images;
  for (int m : microbatches_of_this_run()) images.push_back(images_[static_cast<std::size_t>(m)]);
  return images;
}

Value PlanBuilder::source(std::size_t matrix) {
  const MatrixInfo& info = matrices_[matrix];
  BufferId& bound = plan_.inputs[matrix];
  // Images with their crops are bytes until they are loaded.
  const std::int64_t image = info.image_bytes();
  const DataType type = info.uncropped.empty() ? info.type : DataType::u8;
  Dims dims = info.uncropped.empty() ? info.dims : Dims{image};
  dims.insert(dims.begin(), plan_.images);
  if (!bound.exists())
    bound = emitter_.add_buffer(info.name, BufferKind::input, DeviceId(0), {dims, type, nullptr});
  PlannedTensor t;
  t.name = info.name;
  t.kind = BufferKind::input;
  t.device = at_.device;  // the host's memory is everybody's
  t.dims = dims;
  t.dims[0] = at_.facts.images;
  t.type = type;
  t.buffer = bound;
  t.pinned = true;
  t.begin = at_.facts.first_image * image;
  t.bytes = at_.facts.images * image;
  return emitter_.add(std::move(t));
}

Value PlanBuilder::mean_image() {
  if (at_.node->layer->facts.data->matrix != 0 || net_buffers_.mean.empty()) return {};
  return TaskEmitter::value_of(net_buffers_.mean[at_.device]);
}

std::int64_t PlanBuilder::cost_slot() const {
  for (const CostSlot& c : net_buffers_.cost_slots) {
    if (c.node == at_.node->id) return c.slot;
  }
  throw std::logic_error("plan: '" + at_.node->name + "' has no cost slot");
}

TaskKind PlanBuilder::kind_of(const OpDesc& op) const {
  if (std::holds_alternative<LoadImages>(op) || std::holds_alternative<LoadLabels>(op)) return TaskKind::load;
  return at_.backward && !at_.recomputing ? TaskKind::backward : TaskKind::forward;
}

void PlanBuilder::run(const OpDesc& op, const std::vector<Value>& values) {
  emitter_.emit(place(), kind_of(op), op, values);
  gradients_.add_contributions(place(), at_.node->id);
}

void PlanBuilder::run_across(const OpDesc& op, const std::vector<Value>& values) {
  emitter_.emit_across(place(), kind_of(op), op, values);
  gradients_.add_contributions(place(), at_.node->id);
}

void PlanBuilder::forward_unchanged() {
  set_output(input(0));
  if (!at_.node->fused) record_rewrite("passes", input_node().name, "on without a copy");
}

void PlanBuilder::backward_unchanged(std::size_t i) {
  const NodeId input = at_.node->inputs[i];
  gradients_.contribute_unchanged(input, home(input), output_gradient(), place(), at_.node->id);
}

// --- Layers -------------------------------------------------------------------------------------

void PlanBuilder::enter(const Node& node, int microbatch, bool backward) {
  at_ = {&node, microbatch, node.device(microbatch), backward, false, facts_of(node, microbatch)};
}

void PlanBuilder::forward_run(const Node& node, int run) {
  const std::vector<int> microbatches = microbatches_of_run(node, run);
  for (int m : microbatches) {
    enter(node, m, false);
    node.layer->before_forward(*this);
  }
  for (int m : microbatches) {
    enter(node, m, false);
    node.layer->forward(*this);
    NodeState& s = state(node.id);
    s.recompute = options_.conserve_memory && training() && node.layer->facts.cheap && inputs_stay();
  }
  if (random() && !microbatches.empty())
    updates_.broadcast_state(node, microbatches[0] % node.replicas(), place());
}

void PlanBuilder::backward_run(const Node& node, int run) {
  const std::vector<int> microbatches = microbatches_of_run(node, run);
  for (int m : microbatches) {
    enter(node, m, true);
    node.layer->before_backward(*this);
  }
  for (int m : microbatches) {
    enter(node, m, true);
    node.layer->backward(*this);
  }
  for (const NodeId input : node.inputs) {
    for (const int m : microbatches) gather_gradient(graph_.nodes[input], m);
  }
  updates_.backward_done(node, (run + 1) * node.replicas(), place());
}

/// Moves the gradients of a layer's output to its device once all of its users have run backward, so that
/// the bytes travel while other layers compute.
void PlanBuilder::gather_gradient(const Node& node, int microbatch) {
  if (!node.gets_gradient) return;
  int& done = users_done_[node.id][static_cast<std::size_t>(microbatch)];
  const auto users = std::count_if(node.users.begin(), node.users.end(),
                                   [&](NodeId user) { return graph_.nodes[user].gets_gradient; });
  if (++done < users) return;
  enter(node, microbatch, true);
  gradients_.gather(node, state(node.id).output, place());
}

/// Returns whether backward can read the inputs of the layer: they are not overwritten, or can be computed
/// again.
bool PlanBuilder::inputs_stay() {
  return std::all_of(at_.node->inputs.begin(), at_.node->inputs.end(), [&](NodeId input) {
    return state(input).recompute || state(input).output.id != state(at_.node->id).output.id;
  });
}

PlanBuilder::NodeState& PlanBuilder::state(NodeId node) {
  if (graph_.nodes[node].role == LayerRole::data) return loaded_[{node, at_.microbatch, at_.device}];
  return states_[node][static_cast<std::size_t>(at_.microbatch)];
}

Value PlanBuilder::output_of(NodeId id) {
  const Node& node = graph_.nodes[id];
  NodeState& s = state(id);
  const bool load = node.role == LayerRole::data && !s.output.exists() && &node != at_.node;
  const bool again = at_.backward && s.recompute;
  if (!load && !again) return s.output;
  const At reader = at_;
  at_.node = &node;
  at_.facts = facts_of(node, at_.microbatch);
  if (!load) at_.device = node.device(at_.microbatch);
  std::vector<GradientSums::Pending> pending = gradients_.put_aside();
  if (load) {
    at_.backward = false;
    node.layer->forward(*this);
  } else {
    at_.recomputing = true;
    s.recompute = false;
    s.output = {};
    node.layer->recompute(*this);
  }
  gradients_.resume(std::move(pending));
  at_ = reader;
  return s.output;
}

/// Adds a line to Plan::rewrites, unless it is there already, as it is when backward recomputes.
void PlanBuilder::record_rewrite(const char* does, const std::string& what, const char* how) {
  std::string line = "'" + at_.node->name + "' " + does + " '" + what + "' " + how;
  if (std::find(plan_.rewrites.begin(), plan_.rewrites.end(), line) == plan_.rewrites.end())
    plan_.rewrites.push_back(std::move(line));
}

/// Returns the input's tensor if this layer may overwrite it, else a new one.
Value PlanBuilder::in_place_output() {
  const Layer& layer = *at_.node->layer;
  if (graph_.in_place && layer.facts.in_place) {
    const PlannedTensor& in = emitter_.tensor(input(0));
    if (!in.pinned && in.device == at_.device) {
      record_rewrite("writes over", input_node().name, "in place");
      return input(0);
    }
  }
  PlannedTensor t;
  t.name = at_.node->name;
  t.device = at_.device;
  t.dims = layer.output.dims(at_.facts.images);
  t.type = layer.label_classes() > 0 ? DataType::s32 : DataType::f32;
  if (t.type == DataType::s32) t.dims = {at_.facts.images, layer.output.size()};
  return emitter_.add(std::move(t));
}

void PlanBuilder::set_output(Value v) {
  state(at_.node->id).output = v;
  const bool read_in_backward =
      training() && at_.node->gets_gradient && at_.node->layer->facts.backward_reads == BackwardReads::output;
  if (read_in_backward || at_.node->users.size() > 1) emitter_.tensor(v).pinned = true;
  std::map<DeviceId, NodeId>& readers = emitter_.tensor(v).readers;
  readers.clear();
  for (const NodeId user : at_.node->users) readers.emplace(home(user), user);
  readers.erase(emitter_.tensor(v).device);  // not the layer's own, if it hands on what it reads
}

}  // namespace convnet
