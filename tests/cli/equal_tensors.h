// Compares the tensors of checkpoints.
#pragma once

#include <string>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"

namespace convnet {

/// Checks that names, shapes and numbers are equal.
inline void check_equal_tensors(const TensorFile& a, const TensorFile& b) {
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (const auto& [name, tensor] : b.tensors) {
    INFO(name);
    REQUIRE(a.tensors.contains(name));
    const NamedTensor& other = a.tensors.at(name);
    CHECK(other.dims == tensor.dims);
    CHECK(other.values == tensor.values);
  }
}
inline void check_equal_tensors(const std::string& file, const std::string& other) {
  check_equal_tensors(read_safetensors(file), read_safetensors(other));
}

}  // namespace convnet
