// Walks the layers of a graph and implements the Lowering that they write to.
#include "convnet/plan/build.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/philox.h"
#include "convnet/graph/schedule.h"
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
      emitter_(plan_, target, graph.per_replica > 1),
      gradients_(graph, emitter_),
      updates_(graph, net_buffers, plan_, options.clips, emitter_),
      states_(graph.nodes.size(), std::vector<NodeState>(static_cast<std::size_t>(graph.microbatches))) {
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
  facts.input_masks_gradient = !node.inputs.empty() && graph_.nodes[node.inputs[0]].layer->facts.fuses_relu ==
                                                           FusesRelu::forward_and_gradient;
  facts.random_key = philox_key(options_.seed, node.layer_name);
  facts.first_element = node.first_element;
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
  return contribute(i, in_place ? own : new_input_gradient(i, at_.device));
}

Value PlanBuilder::input_gradient_there(std::size_t i) {
  return contribute(i, new_input_gradient(i, home(at_.node->inputs[i])));
}

Value PlanBuilder::new_input_gradient(std::size_t i, DeviceId device) {
  const NodeId input = at_.node->inputs[i];
  return emitter_.add_like(state(input).output, "d " + graph_.nodes[input].name, BufferKind::gradient,
                           device);
}

Value PlanBuilder::contribute(std::size_t i, Value written) {
  const NodeId input = at_.node->inputs[i];
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

/// If there are few replicas, each of them merges, which saves a copy. If there are many, only the first one
/// merges, because N replicas that read from N others would need N * N messages. Between hosts, the first
/// replica of each host merges the results of the hosts.
void PlanBuilder::merge_replicas(const std::vector<std::string>& from, const std::vector<std::string>& into,
                                 const Dims& dims, const Merge& merge) {
  constexpr std::size_t kMostMerging = 16;
  const std::vector<int> microbatches = microbatches_of_this_run();
  std::vector<DeviceId> devices;
  for (const int m : microbatches) devices.push_back(at_.node->device(m));
  const HostGroups hosts(plan_.topology, devices);
  const auto on_host = [&](int host) {
    std::vector<int> there;
    for (const int member : hosts.members(host))
      there.push_back(microbatches[static_cast<std::size_t>(member)]);
    return there;
  };
  const auto own = std::find(microbatches.begin(), microbatches.end(), at_.microbatch) - microbatches.begin();
  const int first = on_host(hosts.host_of(static_cast<int>(own)))[0];
  const bool few = hosts.hosts() == 1 && microbatches.size() <= kMostMerging;
  if (at_.microbatch != first && !few) {
    for (const std::string& name : into) keep(name, kept_by(first, name));
  } else if (hosts.hosts() == 1) {
    merge_kept(microbatches, from, into, dims, merge);
  } else {
    std::vector<Statistics> parts;
    for (int host = 0; host < hosts.hosts(); ++host)
      parts.push_back(merged_on_host(on_host(host), from, dims, merge));
    merge(parts, kept_as(into, dims));
  }
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

/// Returns the merged statistics of the replicas of a host, which are given by their microbatches. The first
/// call makes the first of them merge.
PlanBuilder::Statistics PlanBuilder::merged_on_host(const std::vector<int>& microbatches,
                                                    const std::vector<std::string>& from, const Dims& dims,
                                                    const Merge& merge) {
  std::vector<std::string> names = from;
  if (microbatches.size() > 1) {
    for (std::string& name : names) name = "host's " + name;
    const At asking = at_;
    at_.microbatch = microbatches[0];
    at_.device = at_.node->device(at_.microbatch);
    if (!state(at_.node->id).kept.contains(names[0])) merge_kept(microbatches, from, names, dims, merge);
    at_ = asking;
  }
  Statistics statistics;
  for (const int m : microbatches) statistics.images += images_[static_cast<std::size_t>(m)];
  for (const std::string& name : names) statistics.values.push_back(kept_by(microbatches[0], name));
  return statistics;
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
    gradients_.gather(node, state(node.id).output, place());
    node.layer->before_backward(*this);
  }
  for (int m : microbatches) {
    enter(node, m, true);
    node.layer->backward(*this);
  }
  updates_.backward_done(node, (run + 1) * node.replicas(), place());
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
}

}  // namespace convnet
