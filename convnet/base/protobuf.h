// Writes protocol buffer messages (protobuf.dev/programming-guides/encoding). A message is a sequence of
// fields, each with a number, a wire type and a value; a nested message is a field whose value is its bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace convnet::protobuf {

template <class T>
std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

inline std::string key(int field, unsigned wire_type) {
  return varint(static_cast<std::uint64_t>(field) << 3U | wire_type);
}
inline std::string number(int field, std::int64_t value) {
  return key(field, 0) + varint(static_cast<std::uint64_t>(value));
}
inline std::string real64(int field, double value) { return key(field, 1) + little_endian(value); }
inline std::string real32(int field, float value) { return key(field, 5) + little_endian(value); }
/// Returns the key and the length, which stand before the `size` bytes of a string or a nested message.
inline std::string head(int field, std::uint64_t size) { return key(field, 2) + varint(size); }
/// Returns a field that is a string or a nested message.
inline std::string bytes(int field, std::string_view value) {
  return head(field, value.size()) + std::string(value);
}

}  // namespace convnet::protobuf
