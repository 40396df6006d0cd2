// Writes the fields of operations and other plain structs into a sink of bytes, so that equal values give
// equal bytes and different values different ones.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "convnet/base/fields.h"
#include "convnet/base/ids.h"
#include "kernels/ops.h"

namespace convnet {

/// A Sink has add(std::uint64_t) and add(std::string_view) for what is written, and
/// add_layout(tensor, FieldBytes&), which adds what it must know of a tensor besides its dims and type.
template <class Sink>
class FieldBytes {
 public:
  explicit FieldBytes(Sink& sink) : sink_(sink) {}

  void add(std::string_view text) {
    add_integer(text.size());
    sink_.add(text);
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
    sink_.add_layout(tensor, *this);
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
  void add_integer(std::uint64_t value) { sink_.add(value); }

  Sink& sink_;
};

}  // namespace convnet
