// The tensors that a kernel reads: pointers that are passed as an argument of the launch.
#pragma once

#include <cstddef>

namespace convnet::cuda {

/// The most tensors that one launch reads.
constexpr int kMostSources = 64;

template <class Value>
struct Sources {
  Value* from[kMostSources];
  int count = 0;

  void add(std::byte* memory) { from[count++] = reinterpret_cast<Value*>(memory); }
};

}  // namespace convnet::cuda
