#include "convnet/plan/hash.h"

#include <fmt/format.h>

#include <bit>
#include <string_view>
#include <type_traits>

#include "convnet/base/checksum.h"
#include "convnet/base/fields.h"
#include "convnet/base/ids.h"

namespace convnet {
namespace {

class Hash {
 public:
  std::uint64_t value() const { return hash_.value(); }

  void add(std::string_view text) {
    add_integer(text.size());
    hash_.add(text);
  }
  void add(const std::string& text) { add(std::string_view(text)); }
  void add(float number) { add_integer(std::bit_cast<std::uint32_t>(number)); }
  void add(double number) { add_integer(std::bit_cast<std::uint64_t>(number)); }
  template <class Tag>
  void add(Id<Tag> id) {
    add(id.value());
  }
  void add(const TensorDesc& tensor) {
    add(tensor.dims);
    add(tensor.type);
    add(tensor.layout_name());
    add(tensor.bytes());
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add_integer(values.size());
    for (const auto& value : values) add(static_cast<T>(value));
  }
  void add(const OpDesc& op) {
    add_integer(op.index());
    std::visit([this](const auto& fields) { add(fields); }, static_cast<const AnyOp&>(op));
  }
  void add(const Sides& sides) {
    add(sides.y);
    add(sides.x);
  }
  /// Square windows are hashed by one number for both sides, as they were before there were others.
  void add(const ConvGeometry& g) {
    static_assert(sizeof(ConvGeometry) == 16 * sizeof(std::int64_t), "a field that is not hashed");
    for (const std::int64_t size : {g.n, g.c, g.h, g.w, g.k, g.oh, g.ow}) add(size);
    for (const std::int64_t of_both : {g.filter.x, g.stride.x, g.pad.x, g.groups}) add(of_both);
    if (g.square()) return;
    for (const Sides& sides : {g.filter, g.stride, g.pad, g.dilation}) add(sides);
  }
  void add(const PoolGeometry& g) {
    static_assert(sizeof(PoolGeometry) == 14 * sizeof(std::int64_t), "a field that is not hashed");
    add(g.kind);
    for (const std::int64_t size : {g.n, g.c, g.h, g.w, g.oh, g.ow}) add(size);
    for (const std::int64_t of_both : {g.size.x, g.stride.x, g.start.x}) add(of_both);
    add(g.sum);
    if (g.square()) return;
    for (const Sides& sides : {g.size, g.stride, g.start}) add(sides);
  }
  /// It adds no field to its base.
  void add(const LocalGeometry& g) {
    static_assert(sizeof(LocalGeometry) == sizeof(ConvGeometry));
    add(static_cast<const ConvGeometry&>(g));
  }
  /// Integers, enumerations, and structs by their fields.
  template <class T>
  void add(const T& value) {
    if constexpr (std::is_integral_v<T> || std::is_enum_v<T>)
      add_integer(static_cast<std::uint64_t>(value));
    else if constexpr (!std::is_empty_v<T>)
      visit_fields(value, [this](const auto& field) { add(field); });
  }

 private:
  void add_integer(std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) hash_.add(static_cast<unsigned char>(value >> (8 * byte)));
  }

  Fnv1a hash_;
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
  Hash hash;
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
    hash.add(task.op);
    hash.add(task.form.args);
    for (BufferUse use : task.uses) {
      use.buffer = ids[use.buffer];
      hash.add(use);
    }
    hash.add(task.after);
    if (is_message(task.kind)) hash.add(task.partner);
  }
  for (const BufferId input : plan.inputs) hash.add(input.exists() ? ids[input] : BufferId());
  hash.add(plan.costs);
  return hash.value();
}

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace convnet
