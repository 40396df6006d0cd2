// Any number of tensors, as a kernel takes them: pointers that travel with the launch.
#pragma once

#include <cstddef>

namespace convnet::cuda {

constexpr int kMostSources = 64;

template <class Value>
struct Sources {
  const Value* from[kMostSources];
  int count = 0;

  void add(const std::byte* memory) { from[count++] = reinterpret_cast<const Value*>(memory); }
};

}  // namespace convnet::cuda
