// Items of NumPy arrays: their types, byte orders and places in memory.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "providers/pickle_contents.h"

namespace convnet {
namespace {

template <class T>
T load_item(const char* from, bool swapped) {
  std::array<char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), from, sizeof(T));
  if (swapped) std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

/// Calls `use` with the item as the C++ type it has.
template <class Use>
auto with_item(const PickleArray& a, std::size_t item, const Use& use) {
  const char* const from = a.data.data() + item * static_cast<std::size_t>(a.item_bytes);
  if (a.type == 'f')
    return a.item_bytes == 4 ? use(load_item<float>(from, a.swapped))
                             : use(load_item<double>(from, a.swapped));
  const bool is_signed = a.type == 'i';
  switch (a.item_bytes) {
    case 1:
      return is_signed ? use(load_item<std::int8_t>(from, false)) : use(load_item<std::uint8_t>(from, false));
    case 2:
      return is_signed ? use(load_item<std::int16_t>(from, a.swapped))
                       : use(load_item<std::uint16_t>(from, a.swapped));
    case 4:
      return is_signed ? use(load_item<std::int32_t>(from, a.swapped))
                       : use(load_item<std::uint32_t>(from, a.swapped));
    default:
      return is_signed ? use(load_item<std::int64_t>(from, a.swapped))
                       : use(load_item<std::uint64_t>(from, a.swapped));
  }
}

}  // namespace

std::optional<std::pair<char, int>> parse_item_type(std::string_view name) {
  if (name.size() != 2) return std::nullopt;
  const char type = name[0];
  const int bytes = name[1] - '0';
  const bool right = type == 'b'                  ? bytes == 1
                     : type == 'i' || type == 'u' ? bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8
                                                  : type == 'f' && (bytes == 4 || bytes == 8);
  if (!right) return std::nullopt;
  return std::pair(type, bytes);
}

std::optional<std::int64_t> whole_number(double value) {
  if (!(value >= -0x1p63 && value < 0x1p63) || value != std::trunc(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::size_t item_count(const Dims& dims) { return static_cast<std::size_t>(element_count(dims)); }

void each_in_c_order(const PickleArray& a, const std::function<void(std::size_t)>& visit) {
  const std::size_t count = item_count(a.dims);
  if (!a.fortran || a.dims.size() < 2) {
    for (std::size_t i = 0; i < count; ++i) visit(i);
    return;
  }
  std::vector<std::size_t> strides, index(a.dims.size(), 0);
  std::size_t stride = 1;
  for (std::int64_t dim : a.dims) {
    strides.push_back(stride);
    stride *= static_cast<std::size_t>(dim);
  }
  for (std::size_t i = 0, at = 0; i < count; ++i) {
    visit(at);
    for (std::size_t d = index.size(); d-- > 0;) {
      at += strides[d];
      if (++index[d] < static_cast<std::size_t>(a.dims[d])) break;
      at -= index[d] * strides[d];
      index[d] = 0;
    }
  }
}

double PickleArray::number(std::size_t item) const {
  return with_item(*this, item, [](auto value) { return static_cast<double>(value); });
}

std::optional<std::int64_t> PickleArray::integer(std::size_t item) const {
  return with_item(*this, item, [](auto value) -> std::optional<std::int64_t> {
    if constexpr (std::is_floating_point_v<decltype(value)>)
      return whole_number(value);
    else if (std::in_range<std::int64_t>(value))
      return static_cast<std::int64_t>(value);
    else
      return std::nullopt;
  });
}

}  // namespace convnet
