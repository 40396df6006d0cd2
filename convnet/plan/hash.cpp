#include "convnet/plan/hash.h"

#include <fmt/format.h>

#include <bit>
#include <string_view>
#include <type_traits>

#include "convnet/base/fields.h"
#include "convnet/base/ids.h"

namespace convnet {
namespace {

class Hash {
 public:
  std::uint64_t value() const { return value_; }

  void add(std::string_view text) {
    add_integer(text.size());
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
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
    for (int byte = 0; byte < 8; ++byte) add_byte(static_cast<unsigned char>(value >> (8 * byte)));
  }
  void add_byte(unsigned char byte) {
    value_ ^= byte;
    value_ *= 0x100000001b3U;
  }

  std::uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace

std::uint64_t plan_hash(const Plan& plan) {
  Hash hash;
  hash.add(plan.target);
  hash.add(plan.precision);
  hash.add(plan.phase);
  hash.add(plan.images);
  hash.add(plan.views);
  for (const Buffer& b : plan.buffers) {
    hash.add(b.name);
    hash.add(b.kind);
    hash.add(b.device);
    hash.add(b.desc);
    hash.add(b.bytes);
    hash.add(b.offset);
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
    hash.add(task.form.workspace_bytes);
    hash.add(task.uses);
    hash.add(task.workspace);
    hash.add(task.after);
  }
  hash.add(plan.inputs);
  hash.add(plan.costs);
  return hash.value();
}

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace convnet
