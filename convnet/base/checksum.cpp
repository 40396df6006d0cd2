#include "convnet/base/checksum.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <bit>

namespace convnet {

void Crc32::add(const void* bytes, std::size_t count) {
  // zlib restarts its checksum when the address is null, as that of an empty text may be.
  if (count > 0)
    value_ = static_cast<std::uint32_t>(crc32_z(value_, static_cast<const Bytef*>(bytes), count));
}

std::string Crc32::text() const { return fmt::format("{:08x}", value_); }

std::uint32_t crc32c(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
      t.at(i) = crc;
    }
    return t;
  }();
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) crc = crc >> 8U ^ table.at((crc ^ static_cast<unsigned char>(c)) & 0xFFU);
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + std::uint32_t{0xA282EAD8};
}

}  // namespace convnet
