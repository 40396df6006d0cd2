#include "convnet/plan/emitter.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "convnet/plan/routes.h"

namespace convnet {

TaskEmitter::TaskEmitter(Plan& plan, const Target& target, Routes routes, bool accumulates)
    : plan_(plan), target_(target), forms_(target), routes_(routes), accumulates_(accumulates) {
  for (const BufferId id : plan.buffers.ids()) {
    const Buffer& b = plan.buffers[id];
    PlannedTensor t;
    t.name = b.name;
    t.kind = b.kind;
    t.device = b.device;
    t.dims = b.desc.dims;
    t.type = b.desc.type;
    t.buffer = id;
    tensors_.push_back(std::move(t));
  }
}

Value TaskEmitter::add(PlannedTensor t) {
  tensors_.push_back(std::move(t));
  return Value{static_cast<int>(tensors_.size()) - 1};
}

BufferId TaskEmitter::add_buffer(std::string name, BufferKind kind, DeviceId device, TensorDesc desc) {
  return convnet::add_buffer(plan_.buffers, std::move(name), kind, device, std::move(desc));
}

Value TaskEmitter::add_like(Value other, std::string name, BufferKind kind, DeviceId device) {
  const PlannedTensor& model = tensor(other);
  PlannedTensor t;
  t.name = std::move(name);
  t.kind = kind;
  t.device = device;
  t.dims = model.dims;
  t.type = model.type;
  if (model.buffer.exists()) t.preferred = buffer(model.buffer).desc;
  return add(std::move(t));
}

/// Whether buffer `id` is on `device` and holds what a reader or writer of `want`, with the shape `dims`,
/// expects. Blocked layouts depend on the shape; plain memory is the same for every shape of as many
/// elements.
bool TaskEmitter::holds(BufferId id, const TensorDesc& want, const Dims& dims, DeviceId device) const {
  const Buffer& b = plan_.buffers[id];
  return b.device == device && same_layout(b.desc, want) && (want.plain() || b.desc.dims == dims);
}

/// Returns the version of `t` for which this is so, or none.
BufferId TaskEmitter::held(const PlannedTensor& t, const TensorDesc& want, const Dims& dims,
                           DeviceId device) const {
  if (t.buffer.exists() && holds(t.buffer, want, dims, device)) return t.buffer;
  for (const BufferId copy : t.copies) {
    if (holds(copy, want, dims, device)) return copy;
  }
  return {};
}

BufferId TaskEmitter::version(PlannedTensor& t, const TensorDesc& wanted, TaskPlace place) {
  if (!t.buffer.exists()) throw std::logic_error("plan: '" + t.name + "' is read before it is written");
  if (const BufferId here = held(t, wanted, wanted.dims, place.device); here.exists()) return here;
  const TensorDesc want = wanted;  // a copy, because new buffers move the one whose layout it may be
  if (t.readers.contains(place.device)) {
    std::vector<DeviceId> devices = {t.device};
    for (const auto& [device, node] : t.readers) devices.push_back(device);
    if (relays(want, devices)) return broadcast(t, want, devices, place);
  }
  const BufferId from = source_of(t, want, place);
  const BufferId copy = add_version(t, want, place.device);
  // One shape for both sides: that of the side whose layout depends on it.
  Reorder op{buffer(from).desc, want};
  (want.plain() ? op.to : op.from).dims = want.plain() ? op.from.dims : want.dims;
  const bool remote = buffer(from).device != place.device;
  Task task = new_task(place, remote ? TaskKind::copy : TaskKind::reorder, forms_.form(op, {op.from, op.to}));
  if (remote) task.stream = Stream::copy;
  task.uses = {{from, Access::read}, {copy, Access::write}};
  add_workspace(task);
  plan_.tasks.push_back(std::move(task));
  return copy;
}

/// Adds a buffer for a version of `t`.
BufferId TaskEmitter::add_version(PlannedTensor& t, const TensorDesc& want, DeviceId device) {
  std::string name = t.name;
  if (!same_layout(buffer(t.buffer).desc, want)) {
    const bool converted = want.type != buffer(t.buffer).desc.type;
    name += " (" + (converted ? std::string(to_string(want.type)) + " " : "") + want.layout_name() + ")";
  }
  const BufferKind kind = t.kind == BufferKind::weights ? BufferKind::workspace : t.kind;
  t.copies.push_back(add_buffer(std::move(name), kind, device, want));
  return t.copies.back();
}

/// Returns whether a tensor that goes to other devices, or a sum that comes from them, takes a route by way
/// of all of them. Small tensors take longer to begin than to move, and devices that share their memory have
/// no links.
bool TaskEmitter::relays(const TensorDesc& moved, const std::vector<DeviceId>& devices) const {
  const auto on_other_host = [&](DeviceId device) {
    return plan_.topology.host(device) != plan_.topology.host(devices[0]);
  };
  return routes_ == Routes::relayed && devices.size() > 2 && moved.bytes() >= target_.link_delay_bytes() &&
         moved.bytes() % size_of(DataType::f32) == 0 &&
         (target_.runs_streams_together() || std::any_of(devices.begin(), devices.end(), on_other_host));
}

std::int64_t TaskEmitter::chunks_of(const TensorDesc& moved, std::size_t stages) const {
  return route_chunks(moved.bytes(), stages, static_cast<double>(target_.link_delay_bytes()));
}

/// Makes versions of `t` on `devices`, of which the first one has it, and returns that on place.device.
BufferId TaskEmitter::broadcast(PlannedTensor& t, const TensorDesc& want,
                                const std::vector<DeviceId>& devices, TaskPlace place) {
  TaskPlace home = place;
  home.device = t.device;
  std::vector<BufferId> versions = {version(t, want, home)};
  for (std::size_t d = 1; d < devices.size(); ++d) versions.push_back(add_version(t, want, devices[d]));
  const Route route = broadcast_route(exchange(devices), versions, 0, want.bytes());
  emit_route(*this, place, route, chunks_of(want, route.size()), t.readers);
  return version(t, want, place);
}

const Exchange& TaskEmitter::exchange(const std::vector<DeviceId>& devices) {
  const auto known = exchanges_.find(devices);
  if (known != exchanges_.end()) return known->second;
  return exchanges_.emplace(devices, Exchange(plan_.topology, devices)).first->second;
}

Value TaskEmitter::fetched(Value from, TaskPlace place) {
  PlannedTensor copy = tensor(from);
  copy.buffer = version(tensor(from), buffer(copy.buffer).desc, place);
  copy.copies.clear();
  copy.device = place.device;
  return add(std::move(copy));
}

void TaskEmitter::widen(Value v, TaskPlace place) {
  PlannedTensor& t = tensor(v);
  const TensorDesc wide = with_type(buffer(t.buffer).desc, DataType::f32);
  if (same_layout(buffer(t.buffer).desc, wide)) return;
  place.device = t.device;
  rebind(t, version(t, wide, place));
}

Value TaskEmitter::sum_across(const std::vector<Value>& parts, Value model, const std::string& name,
                              TaskPlace place) {
  const Value sum = add_like(model, name, BufferKind::gradient, place.device);
  const TensorDesc layout = buffer(tensor(model).buffer).desc;
  std::vector<DeviceId> devices;
  for (const Value part : parts) devices.push_back(tensor(part).device);
  const auto here = std::find(devices.begin(), devices.end(), place.device);
  if (layout.type != DataType::f32 || here == devices.end() || !relays(layout, devices)) {
    std::vector<Value> values = parts;
    values.push_back(sum);
    emit_across(place, TaskKind::accumulate,
                EltwiseSum{tensor(model).dims, std::vector<float>(parts.size(), 1.0F)}, values);
    return sum;
  }
  std::vector<BufferId> own, partial;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    TaskPlace at = place;
    at.device = devices[p];
    own.push_back(version(tensor(parts[p]), layout, at));
    partial.push_back(add_buffer("partial " + name, BufferKind::gradient, devices[p], layout));
  }
  tensor(sum).buffer = add_buffer(name, BufferKind::gradient, place.device, layout);
  const Route route = reduce_route(exchange(devices), own, partial, tensor(sum).buffer,
                                   static_cast<int>(here - devices.begin()), layout.bytes());
  emit_route(*this, place, route, chunks_of(layout, route.size()));
  return sum;
}

/// Returns the buffer from which a version of `t` is made: the primary one, or a copy that is already on the
/// device. A reorder between blocked layouts of different shapes needs a plain version in between, which is
/// made here.
BufferId TaskEmitter::source_of(PlannedTensor& t, const TensorDesc& want, TaskPlace place) {
  const TensorDesc& primary = buffer(t.buffer).desc;
  const auto can_be_reordered = [&](BufferId id) {
    const TensorDesc& desc = buffer(id).desc;
    return desc.plain() || want.plain() || desc.dims == want.dims;
  };
  if (buffer(t.buffer).device == place.device && can_be_reordered(t.buffer)) return t.buffer;
  for (const BufferId copy : t.copies) {
    // A copy of a narrower type has been rounded, so it can be used only if that type is wanted.
    const DataType type = buffer(copy).desc.type;
    const bool exact = type == primary.type || type == want.type || primary.type == DataType::bf16;
    if (buffer(copy).device == place.device && exact && can_be_reordered(copy)) return copy;
  }
  return can_be_reordered(t.buffer) ? t.buffer : version(t, {t.dims, primary.type, nullptr}, place);
}

Task TaskEmitter::new_task(TaskPlace place, TaskKind kind, const FormCache::Formed& formed) const {
  Task task;
  task.kind = kind;
  task.node = place.node;
  task.microbatch = place.microbatch;
  task.pass = place.pass;
  task.device = place.device;
  task.op = formed.op;
  task.form = formed.form;
  task.flops = op_flops(*task.op);
  return task;
}

void TaskEmitter::add_workspace(Task& task) {
  const std::int64_t bytes = task.form->workspace_bytes;
  if (bytes > 0)
    task.workspace =
        add_buffer("workspace", BufferKind::workspace, task.device, {{bytes}, DataType::u8, nullptr});
}

LayoutHints TaskEmitter::hints_for(const std::vector<Argument>& args, const std::vector<Value>& values) {
  LayoutHints hints(args.size());
  for (std::size_t k = 0; k < args.size(); ++k) {
    const PlannedTensor& t = tensor(values[k]);
    if (t.buffer.exists()) {
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

/// Returns the buffer on place.device that an argument reads or writes, in the layout that the operation
/// wants. An operation may use a tensor in another shape with as many elements: it then reads or writes a
/// version in that shape's layout, which is reordered when another operation reads the tensor in its own
/// shape.
BufferId TaskEmitter::bind(PlannedTensor& t, const Argument& arg, const TensorDesc& want, TaskPlace place) {
  if (!has_shape(t) || t.kind == BufferKind::input) return t.buffer;
  if (element_count(arg.dims) != element_count(t.dims))
    throw std::logic_error("plan: '" + t.name + "' " + to_string(t.dims) + " cannot be read as " +
                           to_string(arg.dims));
  const Dims& dims = want.plain() ? t.dims : arg.dims;
  const BufferId here = held(t, want, dims, place.device);
  if (arg.access == Access::read && here.exists()) return here;
  const TensorDesc shaped{dims, want.type, want.layout};
  if (arg.access == Access::read) return version(t, shaped, place);
  if (t.device != place.device)
    throw std::logic_error("plan: '" + t.name + "' is written from another device");
  if (arg.access == Access::read_write) {
    const BufferId id = version(t, shaped, place);
    rebind(t, id);
    return id;
  }
  // The whole tensor is overwritten: a version in the wanted layout is reused, the others become invalid.
  const BufferId id = here.exists() ? here : add_buffer(t.name, t.kind, t.device, shaped);
  rebind(t, id);
  return id;
}

void TaskEmitter::rebind(PlannedTensor& t, BufferId id) {
  if (t.buffer.exists() && id != t.buffer && buffer(t.buffer).persistent())
    throw std::logic_error("plan: '" + t.name + "' is written in another layout than its master's");
  if (std::any_of(t.copies.begin(), t.copies.end(), [&](BufferId copy) { return buffer(copy).persistent(); }))
    throw std::logic_error("plan: '" + t.name + "' is written without its copy that outlives the step");
  t.buffer = id;
  t.copies.clear();
}

/// Returns whether a task computes a gradient of weights concurrently with the backward pass. Only updates
/// wait for such a gradient, and if it is small, launching it takes a GPU as long as computing it. A sum over
/// microbatches would wait at once, and the next microbatch could not use the memory of what the gradient
/// reads.
bool TaskEmitter::runs_beside(const Task& task) const {
  constexpr double kSmall = 4e9;  // FLOP: some 20 us in tf32
  const bool gradient = std::holds_alternative<ConvBackwardWeights>(*task.op) ||
                        std::holds_alternative<InnerProductBackwardWeights>(*task.op) ||
                        std::holds_alternative<LocalBackwardWeights>(*task.op);
  return gradient && !accumulates_ && task.flops < kSmall && target_.runs_streams_together();
}

Task& TaskEmitter::emit(TaskPlace place, TaskKind kind, const OpDesc& op, const std::vector<Value>& values) {
  return emit_op(place, kind, op, values, false);
}

Task& TaskEmitter::emit_across(TaskPlace place, TaskKind kind, const OpDesc& op,
                               const std::vector<Value>& values) {
  return emit_op(place, kind, op, values, true);
}

Task& TaskEmitter::emit_op(TaskPlace place, TaskKind kind, const OpDesc& op, const std::vector<Value>& values,
                           bool across) {
  const std::vector<Argument> args = arguments(op);
  if (args.size() != values.size())
    throw std::logic_error("plan: " + op_name(op) + " has another number of arguments");
  if (across) {
    for (std::size_t k = 0; k < args.size(); ++k) {
      if (args[k].access != Access::read) place.device = tensor(values[k]).device;
    }
  }
  Task task = new_task(place, kind, forms_.form(op, hints_for(args, values)));
  bool remote = false;
  // Reads are bound first, because an operation in place reads the version that its write replaces.
  task.uses.resize(args.size());
  for (const bool reads : {true, false}) {
    for (std::size_t k = 0; k < args.size(); ++k) {
      if ((args[k].access == Access::read) != reads) continue;
      PlannedTensor& t = tensor(values[k]);
      TaskPlace at = place;
      if (across) at.device = t.device;
      remote = remote || at.device != task.device;
      const BufferId id = bind(t, args[k], task.form->args[k], at);
      task.uses[k] = {id, args[k].access, 0, t.begin, t.bytes};
    }
  }
  if (remote) {
    task.kind = std::holds_alternative<Concat>(op) ? TaskKind::copy : TaskKind::reduce;
    task.stream = Stream::copy;
  } else if (runs_beside(task)) {
    task.stream = Stream::update;
  }
  add_workspace(task);
  plan_.tasks.push_back(std::move(task));
  return plan_.tasks.back();
}

Task& TaskEmitter::emit_flat(TaskPlace place, TaskKind kind, Stream stream, const OpDesc& op,
                             std::vector<BufferUse> uses) {
  Task task = new_task(place, kind, forms_.form(op, LayoutHints(uses.size())));
  task.stream = stream;
  task.uses = std::move(uses);
  add_workspace(task);
  plan_.tasks.push_back(std::move(task));
  return plan_.tasks.back();
}

}  // namespace convnet
