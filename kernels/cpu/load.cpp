// Loads images, whole or cropped, and labels.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "convnet/base/crop.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

/// Loads the features [op.offset, op.offset + count) of the visible part of an image, minus the mean unless
/// `mean` is null.
template <class Source, class T>
void load_crop(const LoadImages& op, const std::byte* image, const float* mean, std::int64_t count, T* dst) {
  const std::int64_t seen_height = op.from[2], seen_width = op.from[3];
  const std::int64_t height = op.uncropped[1], width = op.uncropped[2];
  const auto* const pixels = reinterpret_cast<const Source*>(image);
  Crop crop;
  std::memcpy(&crop,
              image + crop_offset(element_count(op.uncropped) * static_cast<std::int64_t>(sizeof(Source))),
              sizeof crop);
  // The columns of the visible part in which the image lies; the others are black.
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
    T* const out = dst + (at - op.offset);
    const float* const less = mean == nullptr ? nullptr : mean + (at - op.offset);
    const auto fill = [=](std::int64_t first, std::int64_t end_of_fill, const auto& pixel) {
      if (less == nullptr) {  // NOLINT(bugprone-branch-clone): the branches differ in the mean
#pragma omp simd
        for (std::int64_t x = first; x < end_of_fill; ++x) out[x] = stored_as<T>(pixel(x));
      } else {
#pragma omp simd
        for (std::int64_t x = first; x < end_of_fill; ++x) out[x] = stored_as<T>(pixel(x) - less[x]);
      }
    };
    const auto black = [](std::int64_t) { return 0.0F; };
    fill(begin, from, black);
    const Source* const source = pixels + (row / seen_height * height + (has_pixels ? y : 0)) * width;
    if (crop.mirror != 0)
      fill(from, to, [=](std::int64_t x) { return static_cast<float>(source[inside_end - 1 - x]); });
    else
      fill(from, to, [=](std::int64_t x) { return static_cast<float>(source[x - inside_begin]); });
    fill(to, end, black);
  }
}

/// Returns the arguments; the result is stored as `type`.
std::vector<TensorDesc> arguments_with(const LoadImages& op, DataType type) {
  std::vector<TensorDesc> args = argument_tensors(op);
  args.back().type = type;
  return args;
}

template <class Source>
Prepared prepare_crop(const LoadImages& op, DataType type) {
  return std::make_shared<KernelOp>(arguments_with(op, type), [op, type](std::span<std::byte* const> args) {
    const std::int64_t image_bytes =
        cropped_image_bytes(element_count(op.uncropped) * static_cast<std::int64_t>(sizeof(Source)));
    const std::int64_t per_image = element_count({op.dims.begin() + 1, op.dims.end()});
    const float* mean = op.mean ? as_floats(args[1]) + op.offset : nullptr;
    with_stored(type, [&]<class T>(T) {
#pragma omp parallel for schedule(static) if (op.dims[0] * per_image >= kParallelElements)
      for (std::int64_t n = 0; n < op.dims[0]; ++n)
        load_crop<Source>(op, args[0] + n * image_bytes, mean, per_image, as<T>(args.back()) + n * per_image);
    });
  });
}

template <class Source>
Prepared prepare_load(const LoadImages& op, DataType type) {
  return std::make_shared<KernelOp>(arguments_with(op, type), [op, type](std::span<std::byte* const> args) {
    const std::int64_t from_image = element_count({op.from.begin() + 1, op.from.end()});
    const std::int64_t per_image = element_count({op.dims.begin() + 1, op.dims.end()});
    const std::int64_t images = op.dims[0];
    const float* mean = op.mean ? as_floats(args[1]) + op.offset : nullptr;
    with_stored(type, [&]<class T>(T) {
#pragma omp parallel for schedule(static) if (images * per_image >= kParallelElements)
      for (std::int64_t n = 0; n < images; ++n) {
        const Source* src = as<Source>(args[0]) + n * from_image + op.offset;
        T* dst = as<T>(args.back()) + n * per_image;
        if (mean != nullptr) {  // NOLINT(bugprone-branch-clone): the branches differ in the mean
#pragma omp simd
          for (std::int64_t i = 0; i < per_image; ++i)
            dst[i] = stored_as<T>(static_cast<float>(src[i]) - mean[i]);
        } else {
#pragma omp simd
          for (std::int64_t i = 0; i < per_image; ++i) dst[i] = stored_as<T>(static_cast<float>(src[i]));
        }
      }
    });
  });
}

}  // namespace

Prepared prepare(const LoadImages& op, const LayoutHints&, DataType product_type) {
  // Maps go into products; vectors may be labels, which costs want as they are.
  const DataType type = op.dims.size() == 4 ? product_type : DataType::f32;
  const std::int64_t last = op.offset + element_count({op.dims.begin() + 1, op.dims.end()});
  if (op.offset < 0 || last > element_count({op.from.begin() + 1, op.from.end()}))
    throw std::logic_error("load: features beyond those of " + to_string(op.from));
  const bool crop = !op.uncropped.empty();
  switch (op.source) {
    case DataType::u8:
      return crop ? prepare_crop<std::uint8_t>(op, type) : prepare_load<std::uint8_t>(op, type);
    case DataType::f32: return crop ? prepare_crop<float>(op, type) : prepare_load<float>(op, type);
    case DataType::f64:
    case DataType::bf16:
    case DataType::s32: break;
  }
  throw std::logic_error(std::string("load: images of type ") + to_string(op.source));
}

Prepared prepare(const LoadLabels& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    std::copy_n(args[0], op.n * op.values * static_cast<std::int64_t>(sizeof(std::int32_t)), args[1]);
  });
}

}  // namespace convnet::cpu::own
