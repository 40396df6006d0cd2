// NumPy's .npy files (format 1.0), written row by row.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "convnet/base/output_file.h"
#include "convnet/base/tensor.h"

namespace convnet {

/// Writes an array of float32 or int32 in C order. finish() makes the file appear under its name; all rows
/// must have been appended. All functions throw RunError for I/O errors.
class NpyWriter {
 public:
  /// `dims` are the dimensions of the whole array, of which the first is the number of rows. `type` is f32 or
  /// s32.
  NpyWriter(const std::string& path, const Dims& dims, DataType type);

  /// Appends whole rows of the array's type.
  void append(std::span<const float> values) { append(values.data(), values.size(), DataType::f32); }
  void append(std::span<const std::int32_t> values) { append(values.data(), values.size(), DataType::s32); }
  void finish();

 private:
  void append(const void* values, std::size_t count, DataType type);

  OutputFile file_;
  DataType type_;
  std::int64_t left_;  ///< number of values that are still to be appended
};

}  // namespace convnet
