// From operations on tensors to tasks on buffers: layouts, reorders, copies between devices, workspaces.
#include <stdexcept>

#include "convnet/plan/build.h"

namespace convnet {

Value PlanBuilder::add(PlannedTensor t) {
  tensors_.push_back(std::move(t));
  return Value{static_cast<int>(tensors_.size()) - 1};
}

int PlanBuilder::add_buffer(std::string name, BufferKind kind, int device, TensorDesc desc) {
  Buffer b;
  b.name = std::move(name);
  b.kind = kind;
  b.device = device;
  b.bytes = desc.bytes();
  b.desc = std::move(desc);
  plan_.buffers.push_back(std::move(b));
  return static_cast<int>(plan_.buffers.size()) - 1;
}

/// A tensor of the same dims, to lie like `other` if the operation that writes it can.
Value PlanBuilder::add_like(Value other, std::string name, BufferKind kind, int device) {
  const PlannedTensor& model = tensor(other);
  PlannedTensor t;
  t.name = std::move(name);
  t.kind = kind;
  t.device = device;
  t.dims = model.dims;
  t.type = model.type;
  if (model.buffer >= 0) t.preferred = buffer(model.buffer).desc;
  return add(std::move(t));
}

/// Fixes the layout of weights that no operation has read yet.
void PlanBuilder::decide_layout(const PlannedTensor& weights, const TensorDesc& desc) {
  const auto id = static_cast<int>(&weights - tensors_.data());
  decide_weights(set_.weights_[static_cast<std::size_t>(set_.weight_of_buffer_.at(id))], desc);
}

/// How the gradient of the weights that `op` reads would lie, if its operation were free to choose.
std::optional<TensorDesc> PlanBuilder::gradient_of_weights(const OpDesc& op) const {
  const auto third_argument = [this](const OpDesc& gradient) {
    return set_.backend_.prepare(gradient, LayoutHints(arguments(gradient).size()))->args().at(2);
  };
  if (const auto* conv = std::get_if<ConvForward>(&op))
    return third_argument(ConvBackwardWeights{conv->g, conv->bias});
  if (const auto* product = std::get_if<InnerProductForward>(&op))
    return third_argument(InnerProductBackwardWeights{product->g, product->bias});
  return std::nullopt;
}

/// Whether buffer `id` is on `device` and holds what a reader or writer of `want` expects. Blocked layouts
/// depend on the shape; plain memory is the same for every shape of as many elements.
bool PlanBuilder::holds(int id, const TensorDesc& want, int device) {
  const Buffer& b = buffer(id);
  return b.device == device && same_layout(b.desc, want) && (want.plain() || b.desc.dims == want.dims);
}

/// The buffer on `device` that holds `t` as `want`, made by a reorder or a copy if there is none yet.
int PlanBuilder::version(PlannedTensor& t, const TensorDesc& want, int device) {
  if (t.buffer < 0) {
    if (t.kind != BufferKind::weights)
      throw std::logic_error("plan: '" + t.name + "' is read before it is written");
    decide_layout(t, with_type(want, t.type));
  }
  if (holds(t.buffer, want, device)) return t.buffer;
  for (int copy : t.copies) {
    if (holds(copy, want, device)) return copy;
  }
  const int from = source_of(t, want, device);
  std::string name = t.name;
  if (!same_layout(buffer(t.buffer).desc, want)) {
    const bool converted = want.type != buffer(t.buffer).desc.type;
    name += " (" + (converted ? std::string(to_string(want.type)) + " " : "") + want.layout_name() + ")";
  }
  const int copy = add_buffer(std::move(name), t.kind == BufferKind::weights ? BufferKind::workspace : t.kind,
                              device, want);
  // One shape for both sides: that of the side whose layout depends on it.
  Reorder op{buffer(from).desc, want};
  (want.plain() ? op.to : op.from).dims = want.plain() ? op.from.dims : want.dims;
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

/// The buffer that a version of `t` is best made from: the primary one, or a copy of it that is already on
/// `device`. A reorder cannot go from one shape's blocked layout to that of another shape: that takes a plain
/// version in between, which is made here.
int PlanBuilder::source_of(PlannedTensor& t, const TensorDesc& want, int device) {
  const TensorDesc& primary = buffer(t.buffer).desc;
  const auto can_be_reordered = [&](int id) {
    const TensorDesc& desc = buffer(id).desc;
    return desc.plain() || want.plain() || desc.dims == want.dims;
  };
  if (buffer(t.buffer).device == device && can_be_reordered(t.buffer)) return t.buffer;
  for (int copy : t.copies) {
    // A copy of a narrower type has been rounded, which does no harm only where that type is wanted.
    const DataType type = buffer(copy).desc.type;
    const bool exact = type == primary.type || type == want.type || primary.type == DataType::bf16;
    if (buffer(copy).device == device && exact && can_be_reordered(copy)) return copy;
  }
  return can_be_reordered(t.buffer) ? t.buffer : version(t, {t.dims, primary.type, nullptr}, device);
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
  task.workspace = add_buffer("workspace", BufferKind::workspace, task.device,
                              {{task.prepared->workspace_bytes()}, DataType::u8, nullptr});
}

LayoutHints PlanBuilder::hints_for(const std::vector<Argument>& args, const std::vector<Value>& values) {
  LayoutHints hints(args.size());
  for (std::size_t k = 0; k < args.size(); ++k) {
    const PlannedTensor& t = tensor(values[k]);
    if (t.buffer >= 0) {
      hints[k] = buffer(t.buffer).desc;
    } else if (t.preferred) {
      hints[k] = t.preferred;
    } else if (args[k].dims != t.dims) {
      hints[k] = TensorDesc{t.dims, t.type, nullptr};
    }
    // The layout of another shape says nothing about this one.
    if (hints[k] && has_shape(t) && hints[k]->dims != args[k].dims)
      hints[k] = TensorDesc{args[k].dims, hints[k]->type, nullptr};
  }
  return hints;
}

/// The buffer on `device` that argument k reads or writes, in the layout the operation wants. An operation
/// may see a tensor as another shape of as many elements: a version in that shape's layout is then read or
/// written, and reordered where somebody reads the tensor as it was.
int PlanBuilder::bind(PlannedTensor& t, const Argument& arg, TensorDesc want, int device) {
  if (!has_shape(t) || t.kind == BufferKind::input) return t.buffer;
  if (element_count(arg.dims) != element_count(t.dims))
    throw std::logic_error("plan: '" + t.name + "' " + to_string(t.dims) + " cannot be read as " +
                           to_string(arg.dims));
  want.dims = want.plain() ? t.dims : arg.dims;
  if (arg.access == Access::read) return version(t, want, device);
  if (t.device != device) throw std::logic_error("plan: '" + t.name + "' is written from another device");
  if (arg.access == Access::read_write) {
    const int id = version(t, want, device);
    rebind(t, id);
    return id;
  }
  // Whole overwrite: a version in the wanted layout is reused, the others are dead.
  int id = t.buffer >= 0 && holds(t.buffer, want, device) ? t.buffer : -1;
  for (int copy : t.copies) {
    if (id < 0 && holds(copy, want, device)) id = copy;
  }
  if (id < 0) id = add_buffer(t.name, t.kind, t.device, want);
  rebind(t, id);
  return id;
}

void PlanBuilder::rebind(PlannedTensor& t, int id) {
  if (t.buffer >= 0 && id != t.buffer && buffer(t.buffer).persistent())
    throw std::logic_error("plan: '" + t.name + "' is written in another layout than its master's");
  t.buffer = id;
  t.copies.clear();
}

/// Gradients of weights that a GPU makes beside the backward pass: only updates wait for them, and while one
/// is small, starting it takes as long as computing it.
bool PlanBuilder::runs_beside(const Task& task) const {
  constexpr double kSmall = 4e9;  // FLOP: some 20 us in tf32
  const bool gradient = std::holds_alternative<ConvBackwardWeights>(task.op) ||
                        std::holds_alternative<InnerProductBackwardWeights>(task.op) ||
                        std::holds_alternative<LocalBackwardWeights>(task.op);
  return gradient && task.flops < kSmall && set_.backend_.runs_streams_together();
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
      const bool converted = t.kind == BufferKind::weights && wants[k].type != t.type;
      if (converted && t.buffer < 0 && training()) {
        // They are copied in every step, however they lie: so they lie as what is added to them.
        if (const auto gradient = gradient_of_weights(op)) decide_layout(t, *gradient);
      }
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
  } else if (runs_beside(task)) {
    task.stream = Stream::update;
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
    place += aligned(b.bytes);
    set_.persistent_[i] = b;
  }
}

}  // namespace convnet
