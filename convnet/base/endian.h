// Reads numbers from the bytes of files.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace convnet {

/// Returns the integer of `size` bytes, at most 8, from `offset` on, in this order. The bytes must exist.
inline std::uint64_t integer_of(std::string_view bytes, std::size_t offset, std::size_t size,
                                std::endian order) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t at = offset + (order == std::endian::big ? i : size - 1 - i);
    value = value << 8 | static_cast<unsigned char>(bytes[at]);
  }
  return value;
}

/// Returns the integer of `size` bytes from `offset` on, the lowest byte first. The bytes must exist.
inline std::uint64_t little_endian(std::string_view bytes, std::size_t offset, std::size_t size) {
  return integer_of(bytes, offset, size, std::endian::little);
}

/// Returns the integer of the first four bytes, the highest byte first.
inline std::uint32_t big_endian(std::string_view bytes) {
  return static_cast<std::uint32_t>(integer_of(bytes, 0, 4, std::endian::big));
}

/// Returns the number that begins at `bytes`, which need not be aligned, in this machine's order.
template <class T>
T from_bytes(const char* bytes) {
  T value{};
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}  // namespace convnet
