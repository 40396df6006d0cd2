// IDX files of unsigned bytes, plain or gzipped: the format of MNIST and its relatives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convnet/base/tensor.h"

namespace convnet {

/// A file's big-endian header: the magic bytes 0, 0, 8 (unsigned byte), number of dimensions; then each
/// dimension.
struct IdxHeader {
  Dims dims;  ///< records outermost: (N,H,W) for images, (N) for labels
  std::int64_t records() const { return dims.front(); }
  std::int64_t record_bytes() const { return element_count(dims) / dims.front(); }
  bool operator==(const IdxHeader&) const = default;
};

/// Reads only the header. Dimensions are at least 1, and at most 4096 but for the first: element_count()
/// cannot overflow. Throws InputError naming the file, what was found and what was expected; RunError for I/O
/// errors.
IdxHeader read_idx_header(const std::string& path, int dimensions);

/// Reads the records that `header`, this file's, promises. Throws InputError if the file holds less (naming
/// the record that is cut), holds more, or is corrupt gzip; RunError for I/O errors. Memory grows with what
/// is really there.
std::vector<std::uint8_t> read_idx_records(const std::string& path, const IdxHeader& header);

}  // namespace convnet
