#include <cstring>
#include <stdexcept>

#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu {
namespace {

template <class Source>
Prepared prepare_load(const LoadImages& op) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const std::int64_t from_image = element_count({op.from.begin() + 1, op.from.end()});
    const std::int64_t per_image = element_count({op.dims.begin() + 1, op.dims.end()});
    const std::int64_t images = op.dims[0];
    const float* mean = op.mean ? as_floats(args[1]) + op.offset : nullptr;
#pragma omp parallel for schedule(static) if (images * per_image >= kParallelElements)
    for (std::int64_t n = 0; n < images; ++n) {
      const Source* src = reinterpret_cast<const Source*>(args[0]) + n * from_image + op.offset;
      float* dst = as_floats(args.back()) + n * per_image;
      if (mean != nullptr) {  // NOLINT(bugprone-branch-clone): the branches differ in the mean
#pragma omp simd
        for (std::int64_t i = 0; i < per_image; ++i) dst[i] = static_cast<float>(src[i]) - mean[i];
      } else {
#pragma omp simd
        for (std::int64_t i = 0; i < per_image; ++i) dst[i] = static_cast<float>(src[i]);
      }
    }
  });
}

}  // namespace

Prepared prepare(const LoadImages& op, const LayoutHints&) {
  const std::int64_t last = op.offset + element_count({op.dims.begin() + 1, op.dims.end()});
  if (op.offset < 0 || last > element_count({op.from.begin() + 1, op.from.end()}))
    throw std::logic_error("load: features beyond those of " + to_string(op.from));
  switch (op.source) {
    case DataType::u8: return prepare_load<std::uint8_t>(op);
    case DataType::f32: return prepare_load<float>(op);
    case DataType::f64:
    case DataType::bf16:
    case DataType::s32: break;
  }
  throw std::logic_error(std::string("load: images of type ") + to_string(op.source));
}

Prepared prepare(const LoadLabels& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    std::memcpy(args[1], args[0], static_cast<std::size_t>(op.n) * sizeof(std::int32_t));
  });
}

}  // namespace convnet::cpu
