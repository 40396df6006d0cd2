// Reads integers from the bytes of files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace convnet {

/// Returns the integer of `size` bytes from `offset` on, the lowest byte first. The bytes must exist.
inline std::uint64_t little_endian(std::string_view bytes, std::size_t offset, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  return value;
}

/// Returns the integer of the first four bytes, the highest byte first.
inline std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char c : bytes.substr(0, 4)) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

}  // namespace convnet
