// Conversion between f32 and bf16, the same on hosts and devices.
#pragma once

#include <cstdint>
#include <cstring>

#include "convnet/base/host_device.h"

namespace convnet {

/// A bf16 number, stored as the upper 16 bits of an IEEE 754 single.
struct BFloat16 {
  std::uint16_t bits = 0;
};

CONVNET_HD inline float to_float(BFloat16 v) {
  const std::uint32_t bits = static_cast<std::uint32_t>(v.bits) << 16;
  float f = 0;
  memcpy(&f, &bits, sizeof f);
  return f;
}
CONVNET_HD inline float to_float(float v) { return v; }

/// Rounds to nearest, ties to even. NaN stays NaN; numbers beyond the largest bf16 become infinite.
CONVNET_HD inline BFloat16 to_bf16(float v) {
#if defined(__CUDA_ARCH__)
  std::uint16_t stored;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(stored) : "f"(v));
  return {stored};
#else
  std::uint32_t bits = 0;
  memcpy(&bits, &v, sizeof bits);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>(bits >> 16 | 0x40U)};
  bits += 0x7fffU + (bits >> 16 & 1U);
  return {static_cast<std::uint16_t>(bits >> 16)};
#endif
}

/// Returns a number converted to `T`, the type that memory holds: float or BFloat16.
template <class T>
CONVNET_HD inline T stored_as(float v);
template <>
CONVNET_HD inline float stored_as<float>(float v) {
  return v;
}
template <>
CONVNET_HD inline BFloat16 stored_as<BFloat16>(float v) {
  return to_bf16(v);
}

}  // namespace convnet
