#include "convnet/train/npy_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <stdexcept>

namespace convnet {
namespace {

/// Magic, version, length and the dict that describes the array, padded so that the numbers lie aligned.
std::string header(const Dims& dims, DataType type) {
  static_assert(std::endian::native == std::endian::little);
  const std::string kind = type == DataType::f32 ? "<f4" : "<i4";
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", kind,
                                 fmt::join(dims, ", "), dims.size() == 1 ? "," : "");
  constexpr std::size_t kBefore = 10, kAlignment = 64;
  dict.resize((kBefore + dict.size() + 1 + kAlignment - 1) / kAlignment * kAlignment - kBefore, ' ');
  dict.back() = '\n';
  std::string bytes = "\x93NUMPY";
  bytes += {'\1', '\0', static_cast<char>(dict.size() % 256), static_cast<char>(dict.size() / 256)};
  return bytes + dict;
}

}  // namespace

NpyWriter::NpyWriter(const std::string& path, const Dims& dims, DataType type)
    : file_(path), type_(type), left_(element_count(dims)) {
  if (type != DataType::f32 && type != DataType::s32)
    throw std::logic_error("npy: " + path + " is to hold another type than f32 or s32");
  file_.write(header(dims, type));
}

void NpyWriter::append(const void* values, std::size_t count, DataType type) {
  left_ -= static_cast<std::int64_t>(count);
  if (left_ < 0 || type != type_) throw std::logic_error("npy: more numbers, or others, than were announced");
  file_.write(values, count * static_cast<std::size_t>(size_of(type)));
}

void NpyWriter::finish() {
  if (left_ != 0) throw std::logic_error("npy: fewer numbers than were announced");
  file_.publish();
}

}  // namespace convnet
