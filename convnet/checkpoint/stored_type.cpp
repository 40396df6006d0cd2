#include "convnet/checkpoint/stored_type.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace convnet {
namespace {

template <class T>
T loaded(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

float f64_number(const char* bytes) { return static_cast<float>(loaded<double>(bytes)); }
float f32_number(const char* bytes) { return loaded<float>(bytes); }

/// IEEE 754 half precision: 1 bit of sign, 5 of exponent (bias 15), 10 of mantissa.
float f16_number(const char* bytes) {
  const auto bits = loaded<std::uint16_t>(bytes);
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float magnitude = exponent == 31  ? mantissa == 0 ? std::numeric_limits<float>::infinity()
                                                          : std::numeric_limits<float>::quiet_NaN()
                           : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                          : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// The upper half of an f32.
float bf16_number(const char* bytes) {
  return std::bit_cast<float>(std::uint32_t{loaded<std::uint16_t>(bytes)} << 16);
}

constexpr std::array<StoredType, 17> stored_types = {{
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
  const auto* const found = std::find_if(stored_types.begin(), stored_types.end(),
                                         [&](const StoredType& type) { return name == type.name; });
  return found == stored_types.end() ? nullptr : found;
}

}  // namespace convnet
