#include "convnet/base/tensor.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace convnet {

std::int64_t element_count(const Dims& dims) {
  std::int64_t count = 1;
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return 0;
  for (std::int64_t d : dims) {
    if (__builtin_mul_overflow(count, d, &count)) return std::numeric_limits<std::int64_t>::max();
  }
  return count;
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

std::string to_string(const Dims& dims) {
  std::string text;
  for (std::int64_t d : dims) {
    if (!text.empty()) text += 'x';
    text += std::to_string(d);
  }
  return text.empty() ? "scalar" : text;
}

std::int64_t size_of(DataType type) {
  switch (type) {
    case DataType::f64: return 8;
    case DataType::u8: return 1;
    case DataType::bf16: return 2;
    case DataType::f32:
    case DataType::s32: break;
  }
  return 4;
}

const char* to_string(DataType type) {
  switch (type) {
    case DataType::f32: return "f32";
    case DataType::f64: return "f64";
    case DataType::s32: return "s32";
    case DataType::bf16: return "bf16";
    case DataType::u8: break;
  }
  return "u8";
}

TensorDesc with_type(const TensorDesc& tensor, DataType type) {
  if (tensor.type == type) return tensor;
  return {tensor.dims, type, tensor.plain() ? nullptr : tensor.layout->with_type(type)};
}

bool same_layout(const TensorDesc& a, const TensorDesc& b) {
  if (a.type != b.type) return false;
  if (a.plain() || b.plain()) return a.plain() && b.plain();
  return a.layout->equals(*b.layout);
}

}  // namespace convnet
