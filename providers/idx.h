// IDX files of unsigned bytes, plain or gzipped: the format of MNIST and its relatives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convnet/base/tensor.h"

namespace convnet {

/// The header of a file. It has the magic bytes 0, 0, 8 (unsigned bytes), the number of dimensions in a byte,
/// and each dimension in four bytes, big-endian.
struct IdxHeader {
  Dims dims;  ///< (N,H,W) for images, (N) for labels
  std::int64_t records() const { return dims.front(); }
  std::int64_t record_bytes() const { return element_count(dims) / dims.front(); }
  bool operator==(const IdxHeader&) const = default;
};

/// Reads only the header. Dimensions are at least 1 and, except for the first, at most 4096, so that
/// element_count() cannot overflow. Throws InputError naming the file, what was found and what was expected;
/// RunError for I/O errors.
IdxHeader read_idx_header(const std::string& path, int dimensions);

/// Reads the records of a file with this header. Throws InputError if the file holds fewer records (naming
/// the one that is cut off), holds more, or is damaged gzip; RunError for I/O errors. Memory is bounded by
/// what the file really holds.
std::vector<std::uint8_t> read_idx_records(const std::string& path, const IdxHeader& header);

}  // namespace convnet
