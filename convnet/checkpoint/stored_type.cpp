#include "convnet/checkpoint/stored_type.h"

#include <algorithm>
#include <array>

#include "convnet/base/endian.h"
#include "convnet/base/small_floats.h"

namespace convnet {
namespace {

float f64_number(const char* bytes) { return static_cast<float>(from_bytes<double>(bytes)); }
float f32_number(const char* bytes) { return from_bytes<float>(bytes); }
float f16_number(const char* bytes) { return from_f16(from_bytes<std::uint16_t>(bytes)); }
float bf16_number(const char* bytes) { return from_bf16(from_bytes<std::uint16_t>(bytes)); }

constexpr std::array<StoredType, 17> kStoredTypes = {{
    {"F64", 8, f64_number},
    {"F32", 4, f32_number},
    {"F16", 2, f16_number},
    {"BF16", 2, bf16_number},
    {"F8_E4M3", 1, nullptr},
    {"F8_E5M2", 1, nullptr},
    {"I64", 8, nullptr},
    {"U64", 8, nullptr},
    {"I32", 4, nullptr},
    {"U32", 4, nullptr},
    {"I16", 2, nullptr},
    {"U16", 2, nullptr},
    {"I8", 1, nullptr},
    {"U8", 1, nullptr},
    {"BOOL", 1, nullptr},
    {"C64", 8, nullptr},
    {"C128", 16, nullptr},
}};

}  // namespace

const StoredType* find_stored_type(std::string_view name) {
  const auto* const found = std::find_if(kStoredTypes.begin(), kStoredTypes.end(),
                                         [&](const StoredType& type) { return name == type.name; });
  return found == kStoredTypes.end() ? nullptr : found;
}

}  // namespace convnet
