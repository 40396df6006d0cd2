// The types of numbers in files of weights, and their conversion to float32.
#pragma once

#include <cstdint>
#include <string_view>

namespace convnet {

/// A type of tensors, with its name in safetensors files.
struct StoredType {
  const char* name;
  std::int64_t bytes;
  /// Converts an element of this machine's byte order; null for types that are no floating-point numbers,
  /// which are left out.
  float (*number)(const char* bytes);
};

/// Returns the type with this name, "F16"; null if there is none.
const StoredType* find_stored_type(std::string_view name);

}  // namespace convnet
