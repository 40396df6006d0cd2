// The arguments of operations: which tensors an operation reads and writes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "convnet/base/tensor.h"

namespace convnet {

enum class Access { read, write, read_write };  ///< what is only written need not be initialised

struct Argument {
  std::string name;
  Access access = Access::read;
  Dims dims;
  DataType type = DataType::f32;
};

/// Functions with which operations declare their arguments.
namespace args {

inline Argument read(std::string name, Dims dims, DataType type = DataType::f32) {
  return {std::move(name), Access::read, std::move(dims), type};
}
inline Argument write(std::string name, Dims dims, DataType type = DataType::f32) {
  return {std::move(name), Access::write, std::move(dims), type};
}
inline Argument read_write(std::string name, Dims dims, DataType type = DataType::f32) {
  return {std::move(name), Access::read_write, std::move(dims), type};
}

/// Returns the dims of an argument whose size the plan decides, not the operation.
inline Dims unsized() { return {0}; }
/// The step block (StepHeader).
inline Argument step() { return read("step", unsized(), DataType::u8); }
/// The cost accumulators of a device, to which an operation adds.
inline Argument costs() { return read_write("costs", unsized(), DataType::f64); }

inline std::vector<Argument> src_to_dst(const Dims& src, const Dims& dst) {
  return {read("src", src), write("dst", dst)};
}
/// Returns the arguments of a backward operation that reads the input of its forward operation.
inline std::vector<Argument> from_src_and_diff(const Dims& src, const Dims& dst) {
  return {read("src", src), read("diff_dst", dst), write("diff_src", src)};
}

/// Returns `dims` without the first one, the number of images.
inline Dims one_image(const Dims& dims) { return {dims.begin() + 1, dims.end()}; }

}  // namespace args
}  // namespace convnet
