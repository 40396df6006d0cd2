// Converts images that the host has copied to the device into floats.
#include <stdexcept>

#include "convnet/base/crop.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"

namespace convnet::cuda {
namespace {

template <class Source, class Stored>
Prepared prepare_load(const LoadImages& op, const OpForm& form) {
  const View view = view_of(form.args.back());
  return std::make_shared<KernelOp>(form, [view, offset = op.offset, has_mean = op.mean,
                                           from_image = element_count({op.from.begin() + 1, op.from.end()})](
                                              Stream stream, std::span<std::byte* const> p, std::byte*) {
    const auto* src = reinterpret_cast<const Source*>(p[0]);
    const float* mean = has_mean ? as_floats(p[1]) : nullptr;
    auto* dst = reinterpret_cast<Stored*>(p.back());
    for_each(stream, view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
      const View::Place at = view.place(i);
      const std::int64_t feature = offset + at.c * view.spatial() + at.s;
      dst[i] = stored_as<Stored>(static_cast<float>(src[at.n * from_image + feature]) -
                                 (mean == nullptr ? 0.0F : mean[feature]));
    });
  });
}

/// Prepares the same for images that arrive uncropped.
template <class Source, class Stored>
Prepared prepare_crop(const LoadImages& op, const OpForm& form) {
  const View view = view_of(form.args.back());
  const std::int64_t pixel_bytes = element_count(op.uncropped) * static_cast<std::int64_t>(sizeof(Source));
  return std::make_shared<KernelOp>(
      form, [view, offset = op.offset, has_mean = op.mean, image_bytes = cropped_image_bytes(pixel_bytes),
             crop_at = crop_offset(pixel_bytes),
             sizes = CropSizes{op.uncropped[1], op.uncropped[2], op.from[2], op.from[3]},
             rows = Divisor(op.from[2]),
             columns = Divisor(op.from[3])](Stream stream, std::span<std::byte* const> p, std::byte*) {
        const std::byte* src = p[0];
        const float* mean = has_mean ? as_floats(p[1]) : nullptr;
        auto* dst = reinterpret_cast<Stored*>(p.back());
        for_each(stream, view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = view.place(i);
          const std::int64_t feature = offset + at.c * view.spatial() + at.s;
          const Quotient row = columns.divide(static_cast<std::uint32_t>(feature));
          const Quotient channel = rows.divide(static_cast<std::uint32_t>(row.value));
          const std::byte* const image = src + at.n * image_bytes;
          const std::int64_t pixel =
              sizes.pixel(*reinterpret_cast<const Crop*>(image + crop_at), channel.rest, row.rest);
          const float value = pixel < 0 ? 0.0F
                                        : static_cast<float>(reinterpret_cast<const Source*>(
                                              image)[channel.value * sizes.height * sizes.width + pixel]);
          dst[i] = stored_as<Stored>(value - (mean == nullptr ? 0.0F : mean[feature]));
        });
      });
}

template <class Source>
Prepared prepare_from(const LoadImages& op, const OpForm& form) {
  Prepared prepared;
  with_stored_type(form.args.back().type, [&](auto stored) {
    using Stored = decltype(stored);
    prepared = op.uncropped.empty() ? prepare_load<Source, Stored>(op, form)
                                    : prepare_crop<Source, Stored>(op, form);
  });
  return prepared;
}

}  // namespace

template <>
Prepared prepare(const LoadImages& op, const OpForm& form, const Context&) {
  const std::int64_t last = op.offset + element_count({op.dims.begin() + 1, op.dims.end()});
  if (op.offset < 0 || last > element_count({op.from.begin() + 1, op.from.end()}))
    throw std::logic_error("load: features beyond those of " + to_string(op.from));
  switch (op.source) {
    case DataType::u8: return prepare_from<std::uint8_t>(op, form);
    case DataType::f32: return prepare_from<float>(op, form);
    case DataType::f64:
    case DataType::bf16:
    case DataType::s32: break;
  }
  throw std::logic_error(std::string("load: images of type ") + to_string(op.source));
}

template <>
Prepared prepare(const LoadLabels& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [n = op.n * op.values](Stream stream, std::span<std::byte* const> p, std::byte*) {
        const auto* src = reinterpret_cast<const std::int32_t*>(p[0]);
        auto* dst = reinterpret_cast<std::int32_t*>(p[1]);
        for_each(stream, n, [=] CONVNET_DEVICE(std::int64_t i) { dst[i] = src[i]; });
      });
}

}  // namespace convnet::cuda
