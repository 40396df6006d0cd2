// Numbers for tests, and how tensors of each type store them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "convnet/base/tensor.h"
#include "kernels/bf16.h"

namespace convnet::test {

using Values = std::vector<double>;

template <class T>
std::vector<std::byte> packed_as(const Values& values) {
  std::vector<T> typed;
  for (double v : values) typed.push_back(static_cast<T>(v));
  const auto* p = reinterpret_cast<const std::byte*>(typed.data());
  return {p, p + typed.size() * sizeof(T)};
}
template <class T>
Values unpacked_as(const std::vector<std::byte>& bytes) {
  std::vector<T> typed(bytes.size() / sizeof(T));
  std::copy_n(bytes.data(), typed.size() * sizeof(T), reinterpret_cast<std::byte*>(typed.data()));
  return {typed.begin(), typed.end()};
}
inline std::vector<std::byte> packed(const Values& values, DataType type) {
  switch (type) {
    case DataType::bf16: {
      std::vector<BFloat16> stored;
      for (double v : values) stored.push_back(to_bf16(static_cast<float>(v)));
      const auto* p = reinterpret_cast<const std::byte*>(stored.data());
      return {p, p + stored.size() * sizeof(BFloat16)};
    }
    case DataType::f64: return packed_as<double>(values);
    case DataType::s32: return packed_as<std::int32_t>(values);
    case DataType::u8: return packed_as<std::uint8_t>(values);
    case DataType::f32: break;
  }
  return packed_as<float>(values);
}
inline Values unpacked(const std::vector<std::byte>& bytes, DataType type) {
  switch (type) {
    case DataType::bf16: {
      std::vector<BFloat16> stored(bytes.size() / sizeof(BFloat16));
      std::copy_n(bytes.data(), stored.size() * sizeof(BFloat16),
                  reinterpret_cast<std::byte*>(stored.data()));
      Values values;
      for (BFloat16 v : stored) values.push_back(static_cast<double>(to_float(v)));
      return values;
    }
    case DataType::f64: return unpacked_as<double>(bytes);
    case DataType::s32: return unpacked_as<std::int32_t>(bytes);
    case DataType::u8: return unpacked_as<std::uint8_t>(bytes);
    case DataType::f32: break;
  }
  return unpacked_as<float>(bytes);
}

/// Deterministic values in [-1, 1), different for every seed, exact in f32.
inline Values test_values(std::int64_t count, std::uint32_t seed) {
  Values values;
  std::uint32_t state = seed * 2654435761U + 12345U;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    values.push_back(static_cast<double>(state >> 12) / static_cast<double>(1 << 19) - 1.0);
  }
  return values;
}
inline Values test_values(const Dims& dims, std::uint32_t seed) {
  return test_values(element_count(dims), seed);
}

/// Returns the same numbers, scaled to [low, high).
inline Values values_between(const Dims& dims, std::uint32_t seed, double low, double high) {
  Values values = test_values(dims, seed);
  for (double& v : values) v = low + (high - low) * (v + 1) / 2;
  return values;
}

}  // namespace convnet::test
