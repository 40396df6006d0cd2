// From the graph to tasks: walks the layers forward and backward, pass by pass, and answers their Lowering
// calls with buffers, layouts, reorders, copies between devices and gradient sums.
#include "convnet/plan/build.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "kernels/philox.h"

namespace convnet {

PlanBuilder::PlanBuilder(PlanSet& set, Phase phase, std::int64_t images)
    : set_(set),
      graph_(set.graph_),
      states_(graph_.nodes.size(), std::vector<NodeState>(static_cast<std::size_t>(graph_.microbatches))),
      backward_done_(graph_.nodes.size(), 0),
      updated_(set.weights_.size(), 0) {
  plan_.phase = phase;
  plan_.images = images;
  plan_.buffers = set.persistent_;
  plan_.costs = set.cost_slots_;
  plan_.inputs.assign(set.matrices_.size(), -1);
  for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
    const Buffer& b = plan_.buffers[i];
    PlannedTensor t;
    t.name = b.name;
    t.kind = b.kind;
    t.device = b.device;
    t.dims = b.desc.dims;
    t.type = b.desc.type;
    // Weights get their layout, and with it their buffer, from the first operation that reads them.
    if (b.bytes > 0) t.buffer = static_cast<int>(i);
    tensors_.push_back(std::move(t));
  }
}

Plan PlanBuilder::build() {
  for (int device = 0; device < set_.devices(); ++device) {
    at_.device = device;
    emit(TaskKind::zero, FillZero{buffer(set_.costs_buffer(device)).desc},
         {Value{set_.costs_buffer(device)}});
  }
  for (pass_ = 0; pass_ < graph_.passes; ++pass_) {
    broken_.clear();
    for (const Node& node : graph_.nodes) {
      for (std::size_t run = 0; run < node.forward_pass.size(); ++run) {
        // Data layers run where and when their output is first read.
        if (node.forward_pass[run] == pass_ && node.role != LayerRole::data)
          forward_run(node, static_cast<int>(run));
      }
    }
    if (!training()) continue;
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      for (std::size_t run = 0; run < node->backward_pass.size(); ++run) {
        if (node->backward_pass[run] == pass_ && node->gets_gradient)
          backward_run(*node, static_cast<int>(run));
      }
    }
  }
  finish_persistent();
  find_dependencies(plan_);
  for (Task& task : plan_.tasks) {
    for (const BufferUse& use : task.uses) task.bytes += bytes_of(plan_, use);
  }
  return std::move(plan_);
}

// --- Lowering -----------------------------------------------------------------------------------

std::int64_t PlanBuilder::images() const { return graph_.images_of(plan_.images, at_.microbatch); }

std::int64_t PlanBuilder::first_image() const { return graph_.images_of(plan_.images, 0) * at_.microbatch; }

std::uint64_t PlanBuilder::random_key() const { return philox_key(set_.options_.seed, at_.node->whole); }

Value PlanBuilder::output() {
  NodeState& s = state(at_.node->id);
  if (!s.output.exists()) set_output(in_place_output());
  return output_of(at_.node->id);
}

bool PlanBuilder::wants_input_gradient(std::size_t i) const {
  return graph_.nodes[static_cast<std::size_t>(at_.node->inputs[i])].gets_gradient;
}

Value PlanBuilder::input_gradient(std::size_t i) {
  // A cost has no output gradient to overwrite.
  const Value own = output_gradient();
  const bool in_place = at_.node->layer->backward_in_place && i == 0 && own.exists() &&
                        tensor(own).device == at_.device && !shared_gradient(own, at_.node->id);
  return add_input_gradient(i, in_place ? own : new_input_gradient(i, at_.device));
}

Value PlanBuilder::input_gradient_there(std::size_t i) {
  return add_input_gradient(i, new_input_gradient(i, home(at_.node->inputs[i])));
}

Value PlanBuilder::new_input_gradient(std::size_t i, int device) {
  const PlannedTensor& activation = tensor(state(at_.node->inputs[i]).output);
  PlannedTensor t = like(activation, "d " + graph_.nodes[static_cast<std::size_t>(at_.node->inputs[i])].name,
                         BufferKind::gradient);
  t.device = device;
  t.preferred = desc_of(activation);
  return add(std::move(t));
}

Value PlanBuilder::add_input_gradient(std::size_t i, Value written) {
  const int input = at_.node->inputs[i];
  NodeState& in = state(input);
  if (tensor(written).device != home(input)) {
    in.remote_gradients.push_back(written);
  } else if (!in.gradient.exists()) {
    in.gradient = written;
  } else {
    pending_sums_.push_back({written, &in.gradient, input});
  }
  return written;
}

Value PlanBuilder::weights(std::size_t i) {
  return Value{weight_buffers(i).weights[static_cast<std::size_t>(at_.microbatch % at_.node->replicas())]};
}

/// Of several users of shared weights, and of several microbatches, each writes its own, summed in the order
/// of the backward passes.
Value PlanBuilder::weights_gradient(std::size_t i) {
  const Value master = weights(i);
  PlannedTensor t = like(tensor(master), "d " + weight_buffers(i).name, BufferKind::weights_gradient);
  t.preferred = desc_of(tensor(master));
  const Value written = add(std::move(t));
  if (!wants_weights_gradient(i)) return written;  // dropped
  Value& gradient = weight_gradients_[master.id];
  if (!gradient.exists()) {
    gradient = written;
  } else {
    pending_sums_.push_back({written, &gradient, -1});
  }
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
    value = add(std::move(t));
  }
  return value;
}

void PlanBuilder::keep(const std::string& name, Value value) { state(at_.node->id).kept[name] = value; }

std::vector<int> PlanBuilder::microbatches_of_run(const Node& node, int run) const {
  std::vector<int> microbatches;
  for (int m = run * node.replicas(); m < (run + 1) * node.replicas(); ++m) {
    if (graph_.images_of(plan_.images, m) > 0) microbatches.push_back(m);
  }
  return microbatches;
}

std::vector<Value> PlanBuilder::kept_by_replicas(const std::string& name) {
  std::vector<Value> values;
  for (int m : microbatches_of_run(*at_.node, at_.microbatch / at_.node->replicas()))
    values.push_back(
        states_[static_cast<std::size_t>(at_.node->id)][static_cast<std::size_t>(m)].kept.at(name));
  return values;
}

std::vector<std::int64_t> PlanBuilder::images_of_replicas() const {
  std::vector<std::int64_t> images;
  for (int m : microbatches_of_run(*at_.node, at_.microbatch / at_.node->replicas()))
    images.push_back(graph_.images_of(plan_.images, m));
  return images;
}

Value PlanBuilder::source(std::size_t matrix) {
  const MatrixInfo& info = set_.matrices_[matrix];
  int& bound = plan_.inputs[matrix];
  if (bound < 0) {
    Buffer b;
    b.name = info.name;
    b.kind = BufferKind::input;
    b.desc.dims = info.dims;
    b.desc.dims.insert(b.desc.dims.begin(), plan_.images);
    b.desc.type = info.type;
    b.bytes = b.desc.bytes();
    bound = add_buffer(std::move(b));
  }
  PlannedTensor t;
  t.name = info.name;
  t.kind = BufferKind::input;
  t.device = at_.device;  // the host's memory is everybody's
  t.dims = info.dims;
  t.dims.insert(t.dims.begin(), images());
  t.type = info.type;
  t.buffer = bound;
  t.pinned = true;
  const std::int64_t image = element_count(info.dims) * size_of(info.type);
  t.begin = first_image() * image;
  t.bytes = images() * image;
  return add(std::move(t));
}

Value PlanBuilder::mean_image() {
  if (at_.node->layer->data_matrix != 0 || set_.mean_.empty()) return {};
  return Value{set_.mean_[static_cast<std::size_t>(at_.device)]};
}

std::int64_t PlanBuilder::cost_slot() const {
  for (const CostSlot& c : set_.cost_slots_) {
    if (c.node == at_.node->id) return c.slot;
  }
  throw std::logic_error("plan: '" + at_.node->name + "' has no cost slot");
}

void PlanBuilder::run_op(const OpDesc& op, const std::vector<Value>& values, bool across) {
  const bool load = std::holds_alternative<LoadImages>(op) || std::holds_alternative<LoadLabels>(op);
  emit(load                               ? TaskKind::load
       : at_.backward && !at_.recomputing ? TaskKind::backward
                                          : TaskKind::forward,
       op, values, across);
  // Sums follow at once, in the order of the users: always the same.
  for (const PendingSum& sum : std::exchange(pending_sums_, {})) {
    if (sum.from.id != sum.into->id) add_gradient(sum.from, *sum.into, sum.node);
  }
}

void PlanBuilder::forward_unchanged() {
  set_output(input(0));
  if (!at_.node->fused) note("passes", input_node().name, "on without a copy");
}

void PlanBuilder::backward_unchanged(std::size_t i) {
  const int input = at_.node->inputs[i];
  NodeState& in = state(input);
  const Value own = output_gradient();
  if (tensor(own).device != home(input)) {
    in.remote_gradients.push_back(own);
  } else if (!in.gradient.exists()) {
    in.gradient = own;
  } else {
    add_gradient(own, in.gradient, input);
  }
}

// --- Layers -------------------------------------------------------------------------------------

void PlanBuilder::enter(const Node& node, int microbatch, bool backward) {
  at_ = {&node, microbatch, node.device(microbatch), backward, false};
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
    s.recompute = set_.options_.conserve_memory && training() && node.layer->cheap && inputs_stay();
  }
  if (random() && !microbatches.empty()) publish_state(node);
}

void PlanBuilder::backward_run(const Node& node, int run) {
  const std::vector<int> microbatches = microbatches_of_run(node, run);
  for (int m : microbatches) {
    enter(node, m, true);
    sum_remote_gradients();
    node.layer->before_backward(*this);
  }
  for (int m : microbatches) {
    enter(node, m, true);
    node.layer->backward(*this);
  }
  backward_done_[static_cast<std::size_t>(node.id)] = (run + 1) * node.replicas();
  update_complete(node);
}

/// Updates the weights of `node` for which all layers that share them have been backward with a window.
void PlanBuilder::update_complete(const Node& node) {
  for (int w : std::set<int>(set_.weights_of_[static_cast<std::size_t>(node.id)].begin(),
                             set_.weights_of_[static_cast<std::size_t>(node.id)].end())) {
    const std::vector<int>& learners = set_.learners_[static_cast<std::size_t>(w)];
    if (learners.empty()) continue;
    int complete = graph_.microbatches;
    for (int user : learners) complete = std::min(complete, backward_done_[static_cast<std::size_t>(user)]);
    WeightBuffers& weights = set_.weights_[static_cast<std::size_t>(w)];
    const int window =
        update_window(graph_, graph_.nodes[static_cast<std::size_t>(weights.node)], plan_.phase);
    int& updated = updated_[static_cast<std::size_t>(w)];
    if (updated + window > complete) continue;
    std::int64_t images = 0;
    for (int m = updated; m < updated + window; ++m) images += graph_.images_of(plan_.images, m);
    updated += window;
    update(weights, images);
  }
}

/// Whether backward can get at the inputs of the layer: it has not written over them, or they can be made
/// again.
bool PlanBuilder::inputs_stay() {
  return std::all_of(at_.node->inputs.begin(), at_.node->inputs.end(), [&](int input) {
    return state(input).recompute || state(input).output.id != state(at_.node->id).output.id;
  });
}

PlanBuilder::NodeState& PlanBuilder::state(int node) {
  if (graph_.nodes[static_cast<std::size_t>(node)].role == LayerRole::data)
    return loaded_[{node, at_.microbatch, at_.device}];
  return states_[static_cast<std::size_t>(node)][static_cast<std::size_t>(at_.microbatch)];
}

Value PlanBuilder::output_of(int id) {
  const Node& node = graph_.nodes[static_cast<std::size_t>(id)];
  NodeState& s = state(id);
  const bool load = node.role == LayerRole::data && !s.output.exists() && &node != at_.node;
  const bool again = at_.backward && s.recompute;
  if (!load && !again) return s.output;
  const At reader = at_;
  at_.node = &node;
  if (!load) at_.device = node.device(at_.microbatch);
  const std::vector<PendingSum> pending = std::exchange(pending_sums_, {});
  if (load) {
    at_.backward = false;
    node.layer->forward(*this);
  } else {
    at_.recomputing = true;
    s.recompute = false;
    s.output = {};
    node.layer->recompute(*this);
  }
  pending_sums_ = pending;
  at_ = reader;
  return s.output;
}

/// A line of Plan::rewrites; the same again, when backward recomputes, says nothing new.
void PlanBuilder::note(const char* does, const std::string& what, const char* how) {
  std::string line = "'" + at_.node->name + "' " + does + " '" + what + "' " + how;
  if (std::find(plan_.rewrites.begin(), plan_.rewrites.end(), line) == plan_.rewrites.end())
    plan_.rewrites.push_back(std::move(line));
}

/// The input's tensor if this layer may write over it, else a new one.
Value PlanBuilder::in_place_output() {
  const Layer& layer = *at_.node->layer;
  if (graph_.in_place && layer.in_place && !(training() && layer.backward_reads_input)) {
    const PlannedTensor& in = tensor(input(0));
    if (!in.pinned && in.device == at_.device) {
      note("writes over", input_node().name, "in place");
      return input(0);
    }
  }
  PlannedTensor t;
  t.name = at_.node->name;
  t.device = at_.device;
  t.dims = layer.output.dims(images());
  t.type = layer.label_classes > 0 ? DataType::s32 : DataType::f32;
  if (t.type == DataType::s32) t.dims = {images(), 1};
  return add(std::move(t));
}

void PlanBuilder::set_output(Value v) {
  state(at_.node->id).output = v;
  const bool read_in_backward =
      training() && at_.node->gets_gradient && at_.node->layer->backward_reads_output;
  if (read_in_backward || at_.node->users.size() > 1) tensor(v).pinned = true;
}

// --- Gradients ----------------------------------------------------------------------------------

/// Whether a node other than `except` that has still to run backward reads this gradient as its own: then
/// nobody may write over it.
bool PlanBuilder::shared_gradient(Value gradient, int except) const {
  for (int id = 0; id <= at_.node->id; ++id) {
    if (id == except) continue;
    const NodeState& s = states_[static_cast<std::size_t>(id)][static_cast<std::size_t>(at_.microbatch)];
    const auto is_it = [&](Value v) { return v.id == gradient.id; };
    if (is_it(s.gradient) || std::any_of(s.remote_gradients.begin(), s.remote_gradients.end(), is_it))
      return true;
  }
  return false;
}

/// sum += part, where `sum` is the gradient of node `of` (-1: of weights). What others still read is not
/// written over: the sum then goes to a new tensor.
void PlanBuilder::add_gradient(Value part, Value& sum, int of) {
  const int here = std::exchange(at_.device, tensor(sum).device);
  if (part.id != sum.id && !(of >= 0 && shared_gradient(sum, of))) {
    emit(TaskKind::accumulate, Accumulate{tensor(sum).dims}, {part, sum});
  } else {
    PlannedTensor t = like(tensor(sum), tensor(sum).name, BufferKind::gradient);
    t.preferred = desc_of(tensor(sum));
    const Value total = add(std::move(t));
    emit(TaskKind::accumulate, EltwiseSum{tensor(sum).dims, {1, 1}}, {sum, part, total});
    sum = total;
  }
  at_.device = here;
}

/// The gradients that users on other devices made, in the order of the backward pass, after those made here.
void PlanBuilder::sum_remote_gradients() {
  NodeState& s = state(at_.node->id);
  const std::vector<Value> remote = std::exchange(s.remote_gradients, {});
  if (remote.empty()) return;
  std::vector<Value> parts;
  if (s.gradient.exists()) parts.push_back(s.gradient);
  parts.insert(parts.end(), remote.begin(), remote.end());
  if (parts.size() == 1) {
    s.gradient = parts[0];
    return;
  }
  PlannedTensor t = like(tensor(s.output), "d " + at_.node->name, BufferKind::gradient);
  t.device = at_.device;
  t.preferred = desc_of(tensor(s.output));
  const EltwiseSum op{t.dims, std::vector<float>(parts.size(), 1.0F)};
  s.gradient = add(std::move(t));
  parts.push_back(s.gradient);
  emit(TaskKind::accumulate, op, parts, true);
}

// --- Weights ------------------------------------------------------------------------------------

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

// --- Tensors and tasks --------------------------------------------------------------------------

Value PlanBuilder::add(PlannedTensor t) {
  tensors_.push_back(std::move(t));
  return Value{static_cast<int>(tensors_.size()) - 1};
}

int PlanBuilder::add_buffer(Buffer b) {
  plan_.buffers.push_back(std::move(b));
  return static_cast<int>(plan_.buffers.size()) - 1;
}

PlanBuilder::PlannedTensor PlanBuilder::like(const PlannedTensor& other, std::string name, BufferKind kind) {
  PlannedTensor t;
  t.name = std::move(name);
  t.kind = kind;
  t.device = other.device;
  t.dims = other.dims;
  t.type = other.type;
  return t;
}

std::optional<TensorDesc> PlanBuilder::desc_of(const PlannedTensor& t) {
  if (t.buffer < 0) return std::nullopt;
  return buffer(t.buffer).desc;
}

/// The buffer on `device` that holds `t` in layout `want`, made by a reorder or a copy if there is none yet.
int PlanBuilder::version(PlannedTensor& t, const TensorDesc& want, int device) {
  if (t.buffer < 0) {
    if (t.kind != BufferKind::weights)
      throw std::logic_error("plan: '" + t.name + "' is read before it is written");
    const auto id = static_cast<int>(&t - tensors_.data());
    decide_weights(set_.weights_[static_cast<std::size_t>(set_.weight_of_buffer_.at(id))], want);
    return t.buffer;
  }
  const auto is_it = [&](int id) {
    return buffer(id).device == device && same_layout(buffer(id).desc, want);
  };
  if (is_it(t.buffer)) return t.buffer;
  int from = t.buffer;
  for (int copy : t.copies) {
    if (is_it(copy)) return copy;
    if (buffer(copy).device == device && buffer(from).device != device) from = copy;
  }
  Buffer b;
  b.name = t.name;
  if (!same_layout(buffer(t.buffer).desc, want)) b.name += " (" + want.layout_name() + ")";
  b.kind = t.kind == BufferKind::weights ? BufferKind::workspace : t.kind;
  b.device = device;
  b.desc = want;
  b.desc.dims = t.dims;
  b.bytes = b.desc.bytes();
  const int copy = add_buffer(std::move(b));
  const Reorder op{buffer(from).desc, buffer(copy).desc};
  const int here = std::exchange(at_.device, device);
  const bool remote = buffer(from).device != device;
  Task task =
      new_task(remote ? TaskKind::copy : TaskKind::reorder, op, set_.backend_.prepare(op, {op.from, op.to}));
  at_.device = here;
  if (remote) task.stream = Stream::copy;
  task.uses = {{from, Access::read}, {copy, Access::write}};
  add_workspace(task);
  plan_.tasks.push_back(std::move(task));
  t.copies.push_back(copy);
  return copy;
}

Task PlanBuilder::new_task(TaskKind kind, OpDesc op, std::shared_ptr<const PreparedOp> prepared) const {
  Task task;
  task.kind = kind;
  task.node = at_.node == nullptr ? -1 : at_.node->id;
  task.microbatch = at_.microbatch;
  task.pass = pass_;
  task.device = at_.device;
  task.op = std::move(op);
  task.prepared = std::move(prepared);
  task.flops = op_flops(task.op);
  return task;
}

void PlanBuilder::add_workspace(Task& task) {
  if (task.prepared->workspace_bytes() == 0) return;
  Buffer b;
  b.name = "workspace";
  b.kind = BufferKind::workspace;
  b.device = task.device;
  b.bytes = task.prepared->workspace_bytes();
  b.desc = {{b.bytes}, DataType::u8, nullptr};
  task.workspace = add_buffer(std::move(b));
}

LayoutHints PlanBuilder::hints_for(const std::vector<Argument>& args, const std::vector<Value>& values) {
  LayoutHints hints(args.size());
  for (std::size_t k = 0; k < args.size(); ++k) {
    const PlannedTensor& t = tensor(values[k]);
    const bool viewed = t.kind != BufferKind::step && t.kind != BufferKind::costs && args[k].dims != t.dims;
    if (viewed) {
      hints[k] = TensorDesc{args[k].dims, args[k].type, nullptr};
    } else if (t.buffer >= 0) {
      hints[k] = buffer(t.buffer).desc;
    } else if (t.preferred) {
      hints[k] = t.preferred;
    }
  }
  return hints;
}

/// The buffer on `device` that argument k reads or writes, in the layout the operation wants.
int PlanBuilder::bind(PlannedTensor& t, const Argument& arg, TensorDesc want, int device) {
  if (t.kind == BufferKind::step || t.kind == BufferKind::costs || t.kind == BufferKind::input)
    return t.buffer;
  if (arg.dims != t.dims) {
    if (!want.plain() || element_count(arg.dims) != element_count(t.dims))
      throw std::logic_error("plan: '" + t.name + "' " + to_string(t.dims) + " cannot be read as " +
                             to_string(arg.dims));
    // A tensor read as another shape of as many elements must lie dense.
    want = {t.dims, t.type, nullptr};
  }
  if (arg.access == Access::read) return version(t, want, device);
  if (t.device != device) throw std::logic_error("plan: '" + t.name + "' is written from another device");
  if (arg.access == Access::read_write) {
    const int id = version(t, want, device);
    rebind(t, id);
    return id;
  }
  // Whole overwrite: a version in the wanted layout is reused, the others are dead.
  const auto is_it = [&](int id) {
    return buffer(id).device == device && same_layout(buffer(id).desc, want);
  };
  int id = t.buffer >= 0 && is_it(t.buffer) ? t.buffer : -1;
  for (int copy : t.copies) {
    if (id < 0 && is_it(copy)) id = copy;
  }
  if (id < 0) {
    Buffer b;
    b.name = t.name;
    b.kind = t.kind;
    b.device = t.device;
    b.desc = want;
    b.bytes = want.bytes();
    id = add_buffer(std::move(b));
  }
  rebind(t, id);
  return id;
}

void PlanBuilder::rebind(PlannedTensor& t, int id) {
  if (t.buffer >= 0 && id != t.buffer && buffer(t.buffer).persistent())
    throw std::logic_error("plan: '" + t.name + "' is written in another layout than its master's");
  t.buffer = id;
  t.copies.clear();
}

void PlanBuilder::emit(TaskKind kind, const OpDesc& op, const std::vector<Value>& values, bool across) {
  const std::vector<Argument> args = arguments(op);
  if (args.size() != values.size())
    throw std::logic_error("plan: " + op_name(op) + " has another number of arguments");
  const int here = at_.device;
  if (across) {
    for (std::size_t k = 0; k < args.size(); ++k) {
      if (args[k].access != Access::read) at_.device = tensor(values[k]).device;
    }
  }
  Task task = new_task(kind, op, set_.backend_.prepare(op, hints_for(args, values)));
  at_.device = here;
  const std::vector<TensorDesc>& wants = task.prepared->args();
  bool remote = false;
  // Reads first: an operation in place reads the version that its write then replaces.
  task.uses.resize(args.size());
  for (const bool reads : {true, false}) {
    for (std::size_t k = 0; k < args.size(); ++k) {
      if ((args[k].access == Access::read) != reads) continue;
      PlannedTensor& t = tensor(values[k]);
      const bool there = across && t.device != task.device;
      remote = remote || there;
      const int id = bind(t, args[k], wants[k], there ? t.device : task.device);
      task.uses[k] = {id, args[k].access, 0, t.begin, t.bytes};
    }
  }
  if (remote) {
    const bool moves = std::holds_alternative<Concat>(op) || std::holds_alternative<Split>(op);
    task.kind = moves ? TaskKind::copy : TaskKind::reduce;
    task.stream = Stream::copy;
  }
  add_workspace(task);
  plan_.tasks.push_back(std::move(task));
}

/// After the first plan every persistent buffer has its layout: fix their places for all plans.
void PlanBuilder::finish_persistent() {
  if (set_.persistent_.empty() || set_.persistent_.back().offset >= 0) return;
  for (WeightBuffers& w : set_.weights_) {
    // Weights that this plan does not touch lie plain.
    if (buffer(w.weights[0]).bytes == 0)
      decide_weights(w, {buffer(w.weights[0]).desc.dims, DataType::f32, nullptr});
  }
  std::vector<std::int64_t> end(static_cast<std::size_t>(set_.devices()), 0);
  for (std::size_t i = 0; i < set_.persistent_.size(); ++i) {
    Buffer& b = plan_.buffers[i];
    std::int64_t& place = end[static_cast<std::size_t>(b.device)];
    b.offset = place;
    place += (b.bytes + 63) / 64 * 64;
    set_.persistent_[i] = b;
  }
}

}  // namespace convnet
