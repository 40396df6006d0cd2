// From the graph to tasks: walks the layers forward and backward, pass by pass, and answers their Lowering
// calls with buffers, layouts, reorders, copies between devices and gradient sums.
#include "convnet/plan/build.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "convnet/base/philox.h"

namespace convnet {

PlanBuilder::PlanBuilder(PlanSet& set, Phase phase, std::int64_t images)
    : set_(set),
      graph_(set.graph_),
      states_(graph_.nodes.size(), std::vector<NodeState>(static_cast<std::size_t>(graph_.microbatches))),
      backward_done_(graph_.nodes.size(), 0),
      updated_(set.weights_.size(), 0) {
  plan_.phase = phase;
  plan_.images = images;
  plan_.views = phase == Phase::test ? set.options_.views : 1;
  if (images % plan_.views != 0) throw std::logic_error("plan: images that are not whole views");
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
    make_updates();
  }
  finish_persistent();
  find_dependencies(plan_);
  for (Task& task : plan_.tasks) {
    for (const BufferUse& use : task.uses) task.bytes += bytes_of(plan_, use);
  }
  return std::move(plan_);
}

// --- Lowering -----------------------------------------------------------------------------------

std::int64_t PlanBuilder::images() const {
  return graph_.images_of(plan_.images, at_.microbatch, plan_.views);
}

std::int64_t PlanBuilder::first_image() const {
  return graph_.images_of(plan_.images, 0, plan_.views) * at_.microbatch;
}

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
  const bool in_place = at_.node->layer->facts.backward_in_place && i == 0 && own.exists() &&
                        tensor(own).device == at_.device && !shared_gradient(own, at_.node->id);
  return add_input_gradient(i, in_place ? own : new_input_gradient(i, at_.device));
}

Value PlanBuilder::input_gradient_there(std::size_t i) {
  return add_input_gradient(i, new_input_gradient(i, home(at_.node->inputs[i])));
}

Value PlanBuilder::new_input_gradient(std::size_t i, int device) {
  const int input = at_.node->inputs[i];
  return add_like(state(input).output, "d " + graph_.nodes[static_cast<std::size_t>(input)].name,
                  BufferKind::gradient, device);
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
  const Value written =
      add_like(master, "d " + weight_buffers(i).name, BufferKind::weights_gradient, at_.device);
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
    if (graph_.images_of(plan_.images, m, plan_.views) > 0) microbatches.push_back(m);
  }
  return microbatches;
}

std::vector<int> PlanBuilder::microbatches_of_this_run() const {
  return microbatches_of_run(*at_.node, at_.microbatch / at_.node->replicas());
}

std::vector<Value> PlanBuilder::kept_by_replicas(const std::string& name) {
  std::vector<Value> values;
  for (int m : microbatches_of_this_run())
    values.push_back(
        states_[static_cast<std::size_t>(at_.node->id)][static_cast<std::size_t>(m)].kept.at(name));
  return values;
}

std::vector<std::int64_t> PlanBuilder::images_of_replicas() const {
  std::vector<std::int64_t> images;
  for (int m : microbatches_of_this_run()) images.push_back(graph_.images_of(plan_.images, m, plan_.views));
  return images;
}

Value PlanBuilder::source(std::size_t matrix) {
  const MatrixInfo& info = set_.matrices_[matrix];
  int& bound = plan_.inputs[matrix];
  // Images with their crops are bytes until they are loaded.
  const std::int64_t image = info.image_bytes();
  const DataType type = info.whole.empty() ? info.type : DataType::u8;
  Dims dims = info.whole.empty() ? info.dims : Dims{image};
  dims.insert(dims.begin(), plan_.images);
  if (bound < 0) bound = add_buffer(info.name, BufferKind::input, 0, {dims, type, nullptr});
  PlannedTensor t;
  t.name = info.name;
  t.kind = BufferKind::input;
  t.device = at_.device;  // the host's memory is everybody's
  t.dims = dims;
  t.dims[0] = images();
  t.type = type;
  t.buffer = bound;
  t.pinned = true;
  t.begin = first_image() * image;
  t.bytes = images() * image;
  return add(std::move(t));
}

Value PlanBuilder::mean_image() {
  if (at_.node->layer->facts.data->matrix != 0 || set_.mean_.empty()) return {};
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
    s.recompute = set_.options_.conserve_memory && training() && node.layer->facts.cheap && inputs_stay();
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
    for (int m = updated; m < updated + window; ++m) images += graph_.images_of(plan_.images, m, plan_.views);
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
  if (graph_.in_place && layer.facts.in_place) {
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
  t.type = layer.label_classes() > 0 ? DataType::s32 : DataType::f32;
  if (t.type == DataType::s32) t.dims = {images(), 1};
  return add(std::move(t));
}

void PlanBuilder::set_output(Value v) {
  state(at_.node->id).output = v;
  const bool read_in_backward =
      training() && at_.node->gets_gradient && at_.node->layer->facts.backward_reads == BackwardReads::output;
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
    const Value total = add_like(sum, tensor(sum).name, BufferKind::gradient, at_.device);
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
  const EltwiseSum op{tensor(s.output).dims, std::vector<float>(parts.size(), 1.0F)};
  s.gradient = add_like(s.output, "d " + at_.node->name, BufferKind::gradient, at_.device);
  parts.push_back(s.gradient);
  emit(TaskKind::accumulate, op, parts, true);
}

}  // namespace convnet
