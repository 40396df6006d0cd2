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

/// Of weights that no operation has read yet.
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

/// The buffer on `device` that holds `t` in layout `want`, made by a reorder or a copy if there is none yet.
int PlanBuilder::version(PlannedTensor& t, const TensorDesc& want, int device) {
  if (t.buffer < 0) {
    if (t.kind != BufferKind::weights)
      throw std::logic_error("plan: '" + t.name + "' is read before it is written");
    decide_layout(t, with_type(want, t.type));
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
  std::string name = t.name;
  if (!same_layout(buffer(t.buffer).desc, want)) {
    const bool converted = want.type != buffer(t.buffer).desc.type;
    name += " (" + (converted ? std::string(to_string(want.type)) + " " : "") + want.layout_name() + ")";
  }
  TensorDesc desc = want;
  desc.dims = t.dims;
  const int copy = add_buffer(std::move(name), t.kind == BufferKind::weights ? BufferKind::workspace : t.kind,
                              device, desc);
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
  task.workspace = add_buffer("workspace", BufferKind::workspace, task.device,
                              {{task.prepared->workspace_bytes()}, DataType::u8, nullptr});
}

LayoutHints PlanBuilder::hints_for(const std::vector<Argument>& args, const std::vector<Value>& values) {
  LayoutHints hints(args.size());
  for (std::size_t k = 0; k < args.size(); ++k) {
    const PlannedTensor& t = tensor(values[k]);
    const bool viewed = t.kind != BufferKind::step && t.kind != BufferKind::costs && args[k].dims != t.dims;
    if (viewed) {
      const DataType type = t.buffer >= 0 ? buffer(t.buffer).desc.type : t.type;
      hints[k] = TensorDesc{args[k].dims, type, nullptr};
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
    want = {t.dims, want.type, nullptr};
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
