// Arrays in NumPy's .npy files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "convnet/base/file.h"
#include "convnet/base/tensor.h"

namespace convnet {

/// The supported types of elements, all little-endian.
enum class NpyType { boolean, i8, u8, i16, u16, i32, u32, i64, u64, f32, f64 };

/// The header of a .npy file (numpy.lib.format, versions 1.0 to 3.0).
struct NpyHeader {
  NpyType type = NpyType::u8;
  Dims dims;
  std::uint64_t offset = 0;  ///< byte offset of the first element in the file
};

/// Reads a header and checks that the file has exactly the size that it implies. Throws InputError naming the
/// file and what is wrong.
NpyHeader read_npy_header(const InputFile& file);

/// A file with an array whose first dimension is the number of records. Immutable: any number of threads may
/// read at once.
class NpyArray {
 public:
  /// Throws InputError, also for an array without records, and RunError for I/O errors.
  explicit NpyArray(const std::string& path);
  /// Makes an array of a file that is in memory; messages call it `name`.
  NpyArray(std::string name, std::string contents);

  const std::string& path() const { return file_.path(); }
  const Dims& dims() const { return header_.dims; }
  std::int64_t records() const { return header_.dims[0]; }
  /// Returns the dims of a record as a net sees it: (1), (D), (1,H,W) or (C,H,W) for an array of one to four
  /// dimensions. Throws InputError for an array of more.
  Dims record_dims() const;
  /// Returns whether it holds labels: one integer for each record.
  bool is_labels() const;
  /// Returns the type of its numbers in memory: u8 for u8, f32 for everything else.
  DataType type() const { return header_.type == NpyType::u8 ? DataType::u8 : DataType::f32; }

  /// Returns the numbers, of type(), of records [first, first + count). Throws InputError naming a record
  /// with NaN or infinity.
  std::vector<std::byte> numbers(std::int64_t first, std::int64_t count) const;
  /// Returns the labels of these records. Throws InputError naming a record that is not a class from 0 to
  /// 999,999.
  std::vector<std::int32_t> labels(std::int64_t first, std::int64_t count) const;

 private:
  std::string raw(std::int64_t first, std::int64_t count) const;

  InputFile file_;
  NpyHeader header_;
};

}  // namespace convnet
