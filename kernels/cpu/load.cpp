#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "convnet/base/crop.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

/// The features [offset, offset + count) of what is seen of an image, minus the mean where there is one.
template <class Source>
void load_crop(const LoadImages& op, const std::byte* image, const float* mean, std::int64_t count,
               float* dst) {
  const std::int64_t seen_height = op.from[2], seen_width = op.from[3];
  const std::int64_t height = op.whole[1], width = op.whole[2];
  const auto* const pixels = reinterpret_cast<const Source*>(image);
  Crop crop;
  std::memcpy(&crop, image + crop_offset(element_count(op.whole) * static_cast<std::int64_t>(sizeof(Source))),
              sizeof crop);
  // The image's columns are seen from here to there.
  const std::int64_t inside_begin = crop.mirror != 0 ? crop.x + seen_width - width : -std::int64_t{crop.x};
  const std::int64_t inside_end = inside_begin + width;
  const std::int64_t last = op.offset + count;
  for (std::int64_t row = op.offset / seen_width; row * seen_width < last; ++row) {
    const std::int64_t at = row * seen_width;
    const std::int64_t begin = std::max(op.offset - at, std::int64_t{0});
    const std::int64_t end = std::min(last - at, seen_width);
    const std::int64_t y = crop.y + row % seen_height;
    const bool has_pixels = y >= 0 && y < height;
    const std::int64_t from = has_pixels ? std::clamp(inside_begin, begin, end) : end;
    const std::int64_t to = has_pixels ? std::clamp(inside_end, from, end) : end;
    float* const out = dst + (at - op.offset);
    std::fill(out + begin, out + from, 0.0F);
    const Source* const source = pixels + (row / seen_height * height + (has_pixels ? y : 0)) * width;
    if (crop.mirror != 0) {  // NOLINT(bugprone-branch-clone): the branches differ in the direction
#pragma omp simd
      for (std::int64_t x = from; x < to; ++x) out[x] = static_cast<float>(source[inside_end - 1 - x]);
    } else {
#pragma omp simd
      for (std::int64_t x = from; x < to; ++x) out[x] = static_cast<float>(source[x - inside_begin]);
    }
    std::fill(out + to, out + end, 0.0F);
  }
  if (mean == nullptr) return;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] -= mean[i];
}

template <class Source>
Prepared prepare_crop(const LoadImages& op) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const std::int64_t image_bytes =
        cropped_image_bytes(element_count(op.whole) * static_cast<std::int64_t>(sizeof(Source)));
    const std::int64_t per_image = element_count({op.dims.begin() + 1, op.dims.end()});
    const float* mean = op.mean ? as_floats(args[1]) + op.offset : nullptr;
#pragma omp parallel for schedule(static) if (op.dims[0] * per_image >= kParallelElements)
    for (std::int64_t n = 0; n < op.dims[0]; ++n)
      load_crop<Source>(op, args[0] + n * image_bytes, mean, per_image,
                        as_floats(args.back()) + n * per_image);
  });
}

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
  const bool crop = !op.whole.empty();
  switch (op.source) {
    case DataType::u8: return crop ? prepare_crop<std::uint8_t>(op) : prepare_load<std::uint8_t>(op);
    case DataType::f32: return crop ? prepare_crop<float>(op) : prepare_load<float>(op);
    case DataType::f64:
    case DataType::bf16:
    case DataType::s32: break;
  }
  throw std::logic_error(std::string("load: images of type ") + to_string(op.source));
}

Prepared prepare(const LoadLabels& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    std::memcpy(args[1], args[0], static_cast<std::size_t>(op.n * op.values) * sizeof(std::int32_t));
  });
}

}  // namespace convnet::cpu::own
