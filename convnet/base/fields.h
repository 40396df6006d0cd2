// Visits the fields of plain structs, so that code over all of them cannot forget one.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace convnet {

namespace detail {

/// A value that converts to any type. field_count() counts how many of them initialise a struct.
struct AnyValue {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): that is what it is for
};

template <class T, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyValue{})...}; };
}

/// Returns the number of fields of an aggregate without arrays or bases.
template <class T, std::size_t Count = 14>
constexpr std::size_t field_count() {
  if constexpr (Count == 0 || takes<T>(std::make_index_sequence<Count>{}))
    return Count;
  else
    return field_count<T, Count - 1>();
}

}  // namespace detail

/// Calls visit(field) for each field of `value`, an aggregate of up to 14 fields, in order.
template <class T, class Visit>
void visit_fields(const T& value, const Visit& visit) {
  static_assert(std::is_aggregate_v<T>);
  static_assert(!detail::takes<T>(std::make_index_sequence<15>{}), "more fields than visit_fields() knows");
  constexpr std::size_t kCount = detail::field_count<T>();
  const auto each = [&](const auto&... fields) { (visit(fields), ...); };
  if constexpr (kCount == 1) {
    const auto& [a] = value;
    each(a);
  } else if constexpr (kCount == 2) {
    const auto& [a, b] = value;
    each(a, b);
  } else if constexpr (kCount == 3) {
    const auto& [a, b, c] = value;
    each(a, b, c);
  } else if constexpr (kCount == 4) {
    const auto& [a, b, c, d] = value;
    each(a, b, c, d);
  } else if constexpr (kCount == 5) {
    const auto& [a, b, c, d, e] = value;
    each(a, b, c, d, e);
  } else if constexpr (kCount == 6) {
    const auto& [a, b, c, d, e, f] = value;
    each(a, b, c, d, e, f);
  } else if constexpr (kCount == 7) {
    const auto& [a, b, c, d, e, f, g] = value;
    each(a, b, c, d, e, f, g);
  } else if constexpr (kCount == 8) {
    const auto& [a, b, c, d, e, f, g, h] = value;
    each(a, b, c, d, e, f, g, h);
  } else if constexpr (kCount == 9) {
    const auto& [a, b, c, d, e, f, g, h, i] = value;
    each(a, b, c, d, e, f, g, h, i);
  } else if constexpr (kCount == 10) {
    const auto& [a, b, c, d, e, f, g, h, i, j] = value;
    each(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (kCount == 11) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    each(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (kCount == 12) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    each(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (kCount == 13) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = value;
    each(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (kCount == 14) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = value;
    each(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  }
}

}  // namespace convnet
