// Sampling, blurring, resizing and colours.
#include "kernels/image_math.h"

#include "kernels/cuda/activations.h"

namespace convnet::cuda {
namespace {

/// One side of a Sampling: output `i` takes pixel start + step * i.
struct SampledSide {
  int start, step, outputs;
  SampledSide(std::int64_t start_, std::int64_t step_, std::int64_t outputs_)
      : start(static_cast<int>(start_)), step(static_cast<int>(step_)), outputs(static_cast<int>(outputs_)) {}

  CONVNET_HD int pixel(int i) const { return start + step * i; }
  /// Returns the output that takes `pixel`, or -1 if none does.
  CONVNET_HD int output(int pixel) const {
    const int i = (pixel - start) / step;
    return i >= 0 && i < outputs && start + step * i == pixel ? i : -1;
  }
};

/// Returns the response of a symmetric filter at a pixel, the `at`-th of a line of `side` pixels that are
/// `step` floats apart. `weights` are given by distance from the middle, up to `reach`.
CONVNET_HD inline float filtered(const float* weights, int reach, const float* pixel, int at,
                                 std::int64_t side, std::int64_t step) {
  float sum = 0;
  for (int d = -reach; d <= reach; ++d)
    if (at + d >= 0 && at + d < side) sum += weights[d < 0 ? -d : d] * pixel[d * step];
  return sum;
}

/// Interpolates bilinearly in the map of `at`.
CONVNET_HD inline float interpolated(const View& view, const View::Place& at, const BilinearTap& row,
                                     const BilinearTap& column, const float* src) {
  // Columns are blended last, as on the CPU, so that both round alike.
  const float first = blend(src[view.index(at.n, at.c, row.first, column.first)],
                            src[view.index(at.n, at.c, row.second, column.first)], row.weight);
  const float second = blend(src[view.index(at.n, at.c, row.first, column.second)],
                             src[view.index(at.n, at.c, row.second, column.second)], row.weight);
  return blend(first, second, column.weight);
}

}  // namespace

template <>
Prepared prepare(const SampleForward& op, const OpForm& form, const Context&) {
  const TensorDesc &src_tensor = form.args[0], &dst_tensor = form.args[1];
  return std::make_shared<KernelOp>(
      form, [rows = SampledSide(op.p.start_y, op.p.step_y, op.p.oh),
             columns = SampledSide(op.p.start_x, op.p.step_x, op.p.ow), from = view_of(src_tensor),
             to = view_of(dst_tensor)](Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float* src = as_floats(args[0]);
        float* dst = as_floats(args[1]);
        for_each(stream, to.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = to.place(i);
          const Pixel o(to, at);
          dst[i] = src[from.index(at.n, at.c, rows.pixel(o.y), columns.pixel(o.x))];
        });
      });
}

template <>
Prepared prepare(const SampleBackward& op, const OpForm& form, const Context&) {
  const TensorDesc &dst_tensor = form.args[0], &src_tensor = form.args[1];
  return std::make_shared<KernelOp>(
      form, [rows = SampledSide(op.p.start_y, op.p.step_y, op.p.oh),
             columns = SampledSide(op.p.start_x, op.p.step_x, op.p.ow), from = view_of(dst_tensor),
             to = view_of(src_tensor)](Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float* diff_dst = as_floats(args[0]);
        float* diff_src = as_floats(args[1]);
        for_each(stream, to.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = to.place(i);
          const Pixel p(to, at);
          const int y = rows.output(p.y), x = columns.output(p.x);
          diff_src[i] = y < 0 || x < 0 ? 0.0F : diff_dst[from.index(at.n, at.c, y, x)];
        });
      });
}

template <>
Prepared prepare(const Blur& op, const OpForm& form, const Context&) {
  const std::int64_t taps = op.size / 2 + 1;  // on one side, the middle included
  return std::make_shared<KernelOp>(
      form, [view = view_of(form.args[0]), taps, stdev = op.stdev, sum = gaussian_sum(op.size, op.stdev)](
                Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const float* src = as_floats(args[0]);
        float* dst = as_floats(args[1]);
        float* along_rows = as_floats(workspace);
        float* weights = along_rows + view.size();
        const int reach = static_cast<int>(taps) - 1;
        const std::int64_t pixel = view.last ? view.c : 1;  // floats from one to the next
        for_each(stream, taps, [=] CONVNET_DEVICE(std::int64_t d) {
          weights[d] = static_cast<float>(gaussian(d, stdev) / sum);
        });
        for_each(stream, view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const Pixel p(view, view.place(i));
          along_rows[i] = filtered(weights, reach, src + i, p.x, view.w, pixel);
        });
        for_each(stream, view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const Pixel p(view, view.place(i));
          dst[i] = filtered(weights, reach, along_rows + i, p.y, view.h, view.w * pixel);
        });
      });
}

template <>
Prepared prepare(const Resize& op, const OpForm& form, const Context&) {
  const TensorDesc &src_tensor = form.args[0], &dst_tensor = form.args[1];
  return std::make_shared<KernelOp>(
      form, [from = view_of(src_tensor), to = view_of(dst_tensor), scale = static_cast<double>(op.scale)](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float* src = as_floats(args[0]);
        float* dst = as_floats(args[1]);
        for_each(stream, to.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = to.place(i);
          const Pixel o(to, at);
          dst[i] = interpolated(from, at, bilinear_tap(o.y, from.h, to.h, scale),
                                bilinear_tap(o.x, from.w, to.w, scale), src);
        });
      });
}

template <>
Prepared prepare(const RandomScale& op, const OpForm& form, const Context&) {
  const TensorDesc &src_tensor = form.args[0], &dst_tensor = form.args[1];
  return std::make_shared<KernelOp>(
      form, [p = op, from = view_of(src_tensor), to = view_of(dst_tensor)](
                Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const float* src = as_floats(args[0]);
        float* dst = as_floats(args[1]);
        const auto* step = reinterpret_cast<const StepHeader*>(args[2]);
        auto* draws = reinterpret_cast<ScaleDraw*>(workspace);  // one per image
        for_each(stream, p.n, [=] CONVNET_DEVICE(std::int64_t n) {
          draws[n] = draw_scale(p.side, p.target, p.max_scale, p.key, step->iteration,
                                static_cast<std::uint32_t>(p.first_image + n));
        });
        for_each(stream, to.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = to.place(i);
          const Pixel o(to, at);
          const ScaleDraw& draw = draws[at.n];
          dst[i] = interpolated(from, at, bilinear_tap(draw.y + o.y, p.side, draw.side, draw.factor),
                                bilinear_tap(draw.x + o.x, p.side, draw.side, draw.factor), src);
        });
      });
}

template <>
Prepared prepare(const ColorTransform& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [view = view_of(form.args[0]), to = op.to, center = op.center](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    const float* src = as_floats(args[0]);
    float* dst = as_floats(args[1]);
    for_each(stream, view.n * view.spatial(), [=] CONVNET_DEVICE(std::int64_t i) {
      const Quotient at = divide(i, view.spatial());  // image and pixel
      const float r = src[view.index(at.value, 0, at.rest)], g = src[view.index(at.value, 1, at.rest)],
                  b = src[view.index(at.value, 2, at.rest)];
      const Color color = to == ColorSpace::yuv ? rgb_to_yuv(r, g, b) : rgb_to_lab(r, g, b, center);
      dst[view.index(at.value, 0, at.rest)] = color.value[0];
      dst[view.index(at.value, 1, at.rest)] = color.value[1];
      dst[view.index(at.value, 2, at.rest)] = color.value[2];
    });
  });
}

}  // namespace convnet::cuda
