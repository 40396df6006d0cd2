// Checksums and hashes of bytes. None of them resists an attacker: they find damage and differences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace convnet {

/// A 64-bit FNV-1a hash of the bytes added so far, in their order.
class Fnv1a {
 public:
  constexpr void add(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  constexpr void add(std::string_view bytes) {
    for (const char c : bytes) add(static_cast<unsigned char>(c));
  }
  constexpr std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

/// The CRC-32 that zlib and PNG files use, of the bytes added so far, in their order.
class Crc32 {
 public:
  /// `bytes` may be null if `count` is 0.
  void add(const void* bytes, std::size_t count);
  std::uint32_t value() const { return value_; }
  /// Returns eight hexadecimal digits.
  std::string text() const;

 private:
  std::uint32_t value_ = 0;
};

/// Returns the CRC-32C (Castagnoli) of bytes.
std::uint32_t crc32c(std::string_view bytes);
/// Returns the CRC-32C of bytes as TFRecord files hold it: rotated and shifted, because checksums of
/// checksums are weak.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace convnet
