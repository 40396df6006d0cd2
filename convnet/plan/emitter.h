// Turns operations on tensors into tasks on buffers: versions of tensors, reorders, copies between devices,
// workspaces.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convnet/plan/form_cache.h"
#include "convnet/plan/plan.h"

namespace convnet {

/// The layer that a new task is for, and the device that it runs on.
struct TaskPlace {
  NodeId node;  ///< none for a task that is for no layer
  int microbatch = 0;
  int pass = 0;
  DeviceId device{0};
};

/// One tensor of a plan under construction. It may exist in several versions at once, in other layouts and on
/// other devices: `buffer` is the primary version; `copies` are made by reorders and copies, and are invalid
/// once the tensor is written again, unless they live as long as the net (BufferKind::rounded). Plain buffers
/// have the tensor's dims. Others may have the dims of another shape with as many elements, as an operation
/// reads or writes it.
struct PlannedTensor {
  std::string name;
  BufferKind kind = BufferKind::activation;
  DeviceId device{0};
  Dims dims;
  DataType type = DataType::f32;
  BufferId buffer;
  std::vector<BufferId> copies;
  std::optional<TensorDesc> preferred;  ///< layout to suggest to the operation that first writes it
  bool pinned = false;                  ///< must not be overwritten in place
  std::map<DeviceId, NodeId> readers;   ///< by other device: the first layer there that will read it
  std::int64_t begin = 0, bytes = -1;   ///< the bytes of the buffer that it occupies; bytes = -1: all of them
};

/// Writes tasks into a plan. A Value is an index into the emitter's tensors.
class TaskEmitter {
 public:
  /// Begins with a tensor for each buffer that `plan` already has, in their order. `accumulates` says whether
  /// the gradients of weights are sums over several microbatches of a replica. The references must outlive
  /// the emitter.
  TaskEmitter(Plan& plan, const Target& target, Routes routes, bool accumulates);

  /// Returns the tensor of a buffer that the plan had from the beginning.
  static Value value_of(BufferId persistent) { return Value{persistent.value()}; }
  Value add(PlannedTensor t);
  /// Adds a tensor with the dims of `other`, and with its layout if the operation that writes it allows that.
  Value add_like(Value other, std::string name, BufferKind kind, DeviceId device);
  PlannedTensor& tensor(Value v) { return tensors_.at(static_cast<std::size_t>(v.id)); }
  Buffer& buffer(BufferId id) { return plan_.buffers[id]; }
  BufferId add_buffer(std::string name, BufferKind kind, DeviceId device, TensorDesc desc);
  const Target& target() const { return target_; }

  /// Adds an operation; `values` are its arguments in the order of arguments(op). Tensors are brought into
  /// the layouts that the operation wants, and to its device. The returned task is valid until the next call.
  Task& emit(TaskPlace place, TaskKind kind, const OpDesc& op, const std::vector<Value>& values);
  /// Does the same for values on several devices: the operation runs on the device of its result and reads
  /// the other arguments where they are.
  Task& emit_across(TaskPlace place, TaskKind kind, const OpDesc& op, const std::vector<Value>& values);
  /// Adds an operation on flat memory whose buffers are chosen already.
  Task& emit_flat(TaskPlace place, TaskKind kind, Stream stream, const OpDesc& op,
                  std::vector<BufferUse> uses);

  /// Returns a buffer on place.device that holds `t` in the layout `wanted`. Adds a reorder or a copy if
  /// there is none.
  BufferId version(PlannedTensor& t, const TensorDesc& wanted, TaskPlace place);
  /// Returns the sum of tensors on several devices, in their order: a new tensor on `device` with the layout
  /// of `model`.
  Value sum_across(const std::vector<Value>& parts, Value model, const std::string& name, TaskPlace place);
  /// Returns the exchange of these devices. There are few lists of devices, which many moves share.
  const Exchange& exchange(const std::vector<DeviceId>& devices);
  /// Returns a copy of a tensor on place.device, made from where the tensor is.
  Value fetched(Value from, TaskPlace place);
  /// Makes a tensor that was written as bf16 one of f32, so that more can be added to it without rounding.
  void widen(Value v, TaskPlace place);
  /// Adds a version that exists from the beginning. Whoever writes the tensor writes it, too.
  void add_lasting_copy(Value v, BufferId copy) { tensor(v).copies.push_back(copy); }
  /// Forgets the other versions of a tensor whose primary buffer has been written by emit_flat().
  void drop_old_copies(Value v) {
    std::erase_if(tensor(v).copies, [&](BufferId copy) { return !buffer(copy).persistent(); });
  }

 private:
  /// Returns whether the tensor has dims; the step block and the costs are just bytes.
  static bool has_shape(const PlannedTensor& t) {
    return t.kind != BufferKind::step && t.kind != BufferKind::costs;
  }
  Task& emit_op(TaskPlace place, TaskKind kind, const OpDesc& op, const std::vector<Value>& values,
                bool across);
  Task new_task(TaskPlace place, TaskKind kind, const FormCache::Formed& formed) const;
  void add_workspace(Task& task);
  bool holds(BufferId id, const TensorDesc& want, const Dims& dims, DeviceId device) const;
  BufferId held(const PlannedTensor& t, const TensorDesc& want, const Dims& dims, DeviceId device) const;
  bool relays(const TensorDesc& moved, const std::vector<DeviceId>& devices) const;
  std::int64_t chunks_of(const TensorDesc& moved, std::size_t stages) const;
  BufferId add_version(PlannedTensor& t, const TensorDesc& want, DeviceId device);
  BufferId broadcast(PlannedTensor& t, const TensorDesc& want, const std::vector<DeviceId>& devices,
                     TaskPlace place);
  BufferId source_of(PlannedTensor& t, const TensorDesc& want, TaskPlace place);
  bool runs_beside(const Task& task) const;
  LayoutHints hints_for(const std::vector<Argument>& args, const std::vector<Value>& values);
  BufferId bind(PlannedTensor& t, const Argument& arg, const TensorDesc& want, TaskPlace place);
  void rebind(PlannedTensor& t, BufferId id);

  Plan& plan_;
  const Target& target_;
  FormCache forms_;
  const Routes routes_;
  const bool accumulates_;
  std::vector<PlannedTensor> tensors_;
  std::map<std::vector<DeviceId>, Exchange> exchanges_;
};

}  // namespace convnet
