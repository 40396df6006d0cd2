#include "convnet/plan/hash.h"

#include <fmt/format.h>

#include <string_view>

#include "convnet/base/checksum.h"
#include "convnet/plan/field_bytes.h"

namespace convnet {
namespace {

/// Layouts are hashed by what every process knows of them.
struct HashSink {
  Fnv1a hash;

  void add(std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) hash.add(static_cast<unsigned char>(value >> (8 * byte)));
  }
  void add(std::string_view text) { hash.add(text); }
  void add_layout(const TensorDesc& tensor, FieldBytes<HashSink>& fields) {
    fields.add(tensor.layout_name());
    fields.add(tensor.bytes());
  }
};

/// Returns for each buffer the id that it would have without the tasks' workspaces; none for a workspace.
Table<BufferId, BufferId> ids_without_workspaces(const Plan& plan) {
  Table<BufferId, BufferId> ids(plan.buffers.size(), BufferId(0));
  for (const Task& task : plan.tasks) {
    if (task.workspace.exists()) ids[task.workspace] = BufferId();
  }
  int next = 0;
  for (BufferId& id : ids) {
    if (id.exists()) id = BufferId(next++);
  }
  return ids;
}

}  // namespace

std::uint64_t plan_hash(const Plan& plan) {
  HashSink sink;
  FieldBytes<HashSink> hash(sink);
  hash.add(plan.target);
  hash.add(plan.precision);
  hash.add(plan.phase);
  hash.add(plan.images);
  hash.add(plan.views);
  const Table<BufferId, BufferId> ids = ids_without_workspaces(plan);
  for (const BufferId b : plan.buffers.ids()) {
    if (!ids[b].exists()) continue;
    const Buffer& buffer = plan.buffers[b];
    hash.add(buffer.name);
    hash.add(buffer.kind);
    hash.add(buffer.device);
    hash.add(buffer.desc);
    hash.add(buffer.bytes);
    if (buffer.persistent()) hash.add(buffer.offset);
  }
  for (const Task& task : plan.tasks) {
    hash.add(task.kind);
    hash.add(task.node);
    hash.add(task.microbatch);
    hash.add(task.pass);
    hash.add(task.device);
    hash.add(task.stream);
    hash.add(*task.op);
    hash.add(task.form->args);
    for (BufferUse use : task.uses) {
      use.buffer = ids[use.buffer];
      hash.add(use);
    }
    hash.add(task.after);
    if (is_message(task.kind)) hash.add(task.partner);
  }
  for (const BufferId input : plan.inputs) hash.add(input.exists() ? ids[input] : BufferId());
  hash.add(plan.costs);
  return sink.hash.value();
}

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace convnet
