// Sampling, blurring, resizing and colours. A plane is one map of an image, or one block of maps in blocked
// layouts. A plane is processed by one thread, so results do not depend on the number of threads.
#include "kernels/image_math.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

/// The layout and the type of all images of an operation: those of argument 0, or plain if its layout has no
/// view.
struct Images {
  Images(const Dims& dims, const LayoutHints& hints)
      : view(*activation_view(walkable(dims, hints))), type(hinted_type(hints, 0)) {}

  std::vector<TensorDesc> tensors(const OpDesc& op) const {
    std::vector<TensorDesc> tensors = argument_tensors(op);
    for (TensorDesc& t : tensors) t = in_view(view, t.dims, type);
    return tensors;
  }

  ActivationView view;
  DataType type;
};

/// The planes of a tensor; a pixel of a plane has `block` numbers.
struct Planes {
  std::int64_t count, block;
  explicit Planes(const ActivationView& view)
      : count(view.n * (view.padded_c / view.block)), block(view.block) {}

  /// Calls body(plane) for all, in parallel where they have enough pixels.
  template <class Body>
  void for_each(std::int64_t pixels, const Body& body) const {
#pragma omp parallel for schedule(static) if (count * pixels * block >= kParallelElements)
    for (std::int64_t plane = 0; plane < count; ++plane) body(plane);
  }
};

/// Copies `count` pixels of `block` numbers; steps are in pixels.
template <class T>
void copy_pixels(const T* src, std::int64_t src_step, T* dst, std::int64_t dst_step, std::int64_t count,
                 std::int64_t block) {
  if (src_step == 1 && dst_step == 1) {
    std::copy_n(src, count * block, dst);
  } else if (block == 1) {
    for (std::int64_t i = 0; i < count; ++i) dst[i * dst_step] = src[i * src_step];
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      std::copy_n(src + i * src_step * block, block, dst + i * dst_step * block);
  }
}

/// Returns the index in a plane of the first pixel that row y of a sampling takes.
std::int64_t first_pixel(const Sampling& p, std::int64_t y) {
  return (p.start_y + p.step_y * y) * p.w + p.start_x;
}

/// Returns the weights of a Gaussian filter at distances 0, 1, ... from its middle. Their sum over the whole
/// filter is 1.
std::vector<float> gaussian_weights(std::int64_t size, float stdev) {
  const double sum = gaussian_sum(size, stdev);
  std::vector<float> weights;
  for (std::int64_t d = 0; d <= size / 2; ++d)
    weights.push_back(static_cast<float>(gaussian(d, stdev) / sum));
  return weights;
}

template <class T>
void store_row(const float* __restrict sums, std::int64_t count, T* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = stored_as<T>(sums[i]);
}

/// Blurs a plane of h rows of `row` numbers, pixels being `step` numbers apart; `scratch` has room for the
/// plane and a row more.
template <class T>
void blur_plane(const std::vector<float>& weights, std::int64_t h, std::int64_t row, std::int64_t step,
                const T* src, float* scratch, T* dst) {
  const auto reach = static_cast<std::int64_t>(weights.size()) - 1;
  const auto weight = [&](std::int64_t d) { return weights[static_cast<std::size_t>(std::abs(d))]; };
  std::fill_n(scratch, h * row, 0.0F);
  for (std::int64_t y = 0; y < h; ++y)
    for (std::int64_t d = -reach; d <= reach; ++d) {
      const std::int64_t begin = std::max<std::int64_t>(0, -d * step), end = std::min(row, row - d * step);
      const std::int64_t at = y * row + begin;
      add_scaled(src + at + d * step, weight(d), end - begin, scratch + at);
    }
  float* sums = scratch + h * row;
  for (std::int64_t y = 0; y < h; ++y) {
    std::fill_n(sums, row, 0.0F);
    for (std::int64_t d = std::max(-reach, -y); d <= std::min(reach, h - 1 - y); ++d)
      add_scaled(scratch + (y + d) * row, weight(d), row, sums);
    store_row(sums, row, dst + y * row);
  }
}

using Taps = std::vector<BilinearTap>;

Taps bilinear_taps(std::int64_t side, std::int64_t outputs, double scale) {
  Taps taps;
  for (std::int64_t i = 0; i < outputs; ++i) taps.push_back(bilinear_tap(i, side, outputs, scale));
  return taps;
}

/// Interpolates a map of `w` columns bilinearly; `scratch` has room for a row of it.
template <class T>
void interpolate(const Taps& rows, const Taps& columns, std::int64_t w, const T* src, float* scratch,
                 T* dst) {
  for (const BilinearTap& row : rows) {
    const T *first = src + row.first * w, *second = src + row.second * w;
#pragma omp simd
    for (std::int64_t x = 0; x < w; ++x)
      scratch[x] = blend(to_float(first[x]), to_float(second[x]), row.weight);
    for (const BilinearTap& column : columns)
      *dst++ = stored_as<T>(blend(scratch[column.first], scratch[column.second], column.weight));
  }
}

/// Calls taps_of(n, rows, columns) for every image, and interpolates its maps.
template <class T, class TapsOf>
void interpolate_images(const Dims& from, const Dims& to, const T* src, T* dst, const TapsOf& taps_of) {
  const std::int64_t maps = from[1], pixels = from[2] * from[3], outputs = to[2] * to[3];
#pragma omp parallel if (element_count(to) >= kParallelElements)
  {
    std::vector<float> scratch(static_cast<std::size_t>(from[3]));
    Taps rows, columns;
#pragma omp for schedule(static)
    for (std::int64_t n = 0; n < from[0]; ++n) {
      taps_of(n, rows, columns);
      for (std::int64_t c = n * maps; c < (n + 1) * maps; ++c)
        interpolate(rows, columns, from[3], src + c * pixels, scratch.data(), dst + c * outputs);
    }
  }
}

}  // namespace

Prepared prepare(const SampleForward& op, const LayoutHints& hints) {
  const Images images(op.p.src(), hints);
  return std::make_shared<KernelOp>(
      images.tensors(op),
      [p = op.p, planes = Planes(images.view), type = images.type](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          planes.for_each(p.oh * p.ow, [&](std::int64_t plane) {
            const T* src = as<T>(args[0]) + plane * p.h * p.w * planes.block;
            T* dst = as<T>(args[1]) + plane * p.oh * p.ow * planes.block;
            for (std::int64_t y = 0; y < p.oh; ++y)
              copy_pixels(src + first_pixel(p, y) * planes.block, p.step_x, dst + y * p.ow * planes.block, 1,
                          p.ow, planes.block);
          });
        });
      });
}

Prepared prepare(const SampleBackward& op, const LayoutHints& hints) {
  const Images images(op.p.dst(), hints);
  return std::make_shared<KernelOp>(
      images.tensors(op),
      [p = op.p, planes = Planes(images.view), type = images.type](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          planes.for_each(p.h * p.w, [&](std::int64_t plane) {
            const T* diff_dst = as<T>(args[0]) + plane * p.oh * p.ow * planes.block;
            T* diff_src = as<T>(args[1]) + plane * p.h * p.w * planes.block;
            std::fill_n(diff_src, p.h * p.w * planes.block, T{});
            for (std::int64_t y = 0; y < p.oh; ++y)
              copy_pixels(diff_dst + y * p.ow * planes.block, 1, diff_src + first_pixel(p, y) * planes.block,
                          p.step_x, p.ow, planes.block);
          });
        });
      });
}

Prepared prepare(const Blur& op, const LayoutHints& hints) {
  const Images images(op.dims, hints);
  return std::make_shared<KernelOp>(
      images.tensors(op),
      [weights = gaussian_weights(op.size, op.stdev), h = op.dims[2], row = op.dims[3] * images.view.block,
       planes = Planes(images.view), type = images.type](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          const T* src = as<T>(args[0]);
          T* dst = as<T>(args[1]);
#pragma omp parallel if (planes.count * h * row >= kParallelElements)
          {
            std::vector<float> scratch(static_cast<std::size_t>((h + 1) * row));
#pragma omp for schedule(static)
            for (std::int64_t plane = 0; plane < planes.count; ++plane)
              blur_plane(weights, h, row, planes.block, src + plane * h * row, scratch.data(),
                         dst + plane * h * row);
          }
        });
      });
}

Prepared prepare(const Resize& op, const LayoutHints& hints) {
  const double scale = static_cast<double>(op.scale);
  return std::make_shared<KernelOp>(
      plain_activations(op, hints),
      [op, row_taps = bilinear_taps(op.h, op.oh, scale), column_taps = bilinear_taps(op.w, op.ow, scale),
       type = hinted_type(hints, 0)](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          interpolate_images(op.src(), op.dst(), as<T>(args[0]), as<T>(args[1]),
                             [&](std::int64_t, Taps& rows, Taps& columns) {
                               rows = row_taps;
                               columns = column_taps;
                             });
        });
      });
}

Prepared prepare(const RandomScale& op, const LayoutHints& hints) {
  return std::make_shared<KernelOp>(
      plain_activations(op, hints), [op, type = hinted_type(hints, 0)](std::span<std::byte* const> args) {
        StepHeader step;
        std::memcpy(&step, args[2], sizeof step);
        const auto taps_of = [&](std::int64_t n, Taps& rows, Taps& columns) {
          rows.clear();
          columns.clear();
          const ScaleDraw draw = draw_scale(op.side, op.target, op.max_scale, op.key, step.iteration,
                                            static_cast<std::uint32_t>(op.first_image + n));
          for (std::int64_t i = 0; i < op.target; ++i) {
            rows.push_back(bilinear_tap(draw.y + i, op.side, draw.side, draw.factor));
            columns.push_back(bilinear_tap(draw.x + i, op.side, draw.side, draw.factor));
          }
        };
        with_stored(type, [&]<class T>(T) {
          interpolate_images(op.src(), op.dst(), as<T>(args[0]), as<T>(args[1]), taps_of);
        });
      });
}

Prepared prepare(const ColorTransform& op, const LayoutHints& hints) {
  return std::make_shared<KernelOp>(
      plain_activations(op, hints), [op, type = hinted_type(hints, 0)](std::span<std::byte* const> args) {
        const std::int64_t pixels = op.dims[2] * op.dims[3];
        const auto transform = [&]<class T>(T, const auto& convert) {
#pragma omp parallel for schedule(static) if (element_count(op.dims) >= kParallelElements)
          for (std::int64_t n = 0; n < op.dims[0]; ++n) {
            const T* src = as<T>(args[0]) + n * 3 * pixels;
            T* dst = as<T>(args[1]) + n * 3 * pixels;
            for (std::int64_t i = 0; i < pixels; ++i) {
              const Color color =
                  convert(to_float(src[i]), to_float(src[pixels + i]), to_float(src[2 * pixels + i]));
              for (std::int64_t k = 0; k < 3; ++k) dst[k * pixels + i] = stored_as<T>(color.value[k]);
            }
          }
        };
        with_stored(type, [&](auto stored) {
          if (op.to == ColorSpace::yuv)
            transform(stored, rgb_to_yuv);
          else
            transform(stored, [&](float r, float g, float b) { return rgb_to_lab(r, g, b, op.center); });
        });
      });
}

}  // namespace convnet::cpu::own
