// Response and contrast normalisation within maps. A plane is one image's map, or its block of maps that are
// stored together: then a row is a row of pixels of 16 floats, and its windows step by 16. Sums over windows
// are taken along rows, then along columns; in fp32, of few terms, and not as running sums, which would lose
// digits.
#include <stdexcept>

#include "kernels/cpu/own_kernel.h"
#include "kernels/cpu/power.h"

namespace convnet::cpu::own {
namespace {

/// Window of pixel p along one side: [p - below, p + above], clipped.
struct Reach {
  std::int64_t below, above;
};
Reach reach(const WindowNorm& p, std::int64_t side) {
  return {std::min(p.size / 2, side - 1), std::min(p.size - 1 - p.size / 2, side - 1)};
}
/// The pixels whose windows hold a pixel reach as far up as windows reach down.
Reach transposed(Reach r) { return {r.above, r.below}; }

std::int64_t clipped(Reach r, std::int64_t at, std::int64_t side) {
  return std::min(side, at + r.above + 1) - std::max<std::int64_t>(0, at - r.below);
}

struct Geometry {
  Geometry(const WindowNorm& p, const ActivationView& view_)
      : view(view_),
        rows(p.h),
        row(p.w * view.block),
        y(reach(p, p.h)),
        x(reach(p, p.w)),
        halo(std::max(x.below, x.above) * view.block),
        stride(row + 2 * halo) {
    for (std::int64_t i = 0; i < row; ++i)
      columns.push_back(static_cast<float>(clipped(x, i / view.block, p.w)));
  }
  std::int64_t planes() const { return view.n * (view.padded_c / view.block); }
  std::int64_t plane_floats() const { return rows * row; }

  ActivationView view;
  std::int64_t rows, row;  ///< rows of a plane, floats of one
  Reach y, x;
  std::int64_t halo, stride;   ///< zeros on both sides of the rows of a sheet; distance between rows
  std::vector<float> columns;  ///< of the clipped windows, for each float of a row
};

/// A plane in scratch memory, its rows between zeros.
class Sheet {
 public:
  explicit Sheet(const Geometry& g)
      : floats_(static_cast<std::size_t>(g.rows * g.stride)),
        first_(floats_.data() + g.halo),
        stride_(g.stride) {}
  float* row(std::int64_t y) { return first_ + y * stride_; }
  const float* row(std::int64_t y) const { return first_ + y * stride_; }

 private:
  std::vector<float> floats_;
  float* first_;
  std::int64_t stride_;
};

void add(const float* __restrict values, std::int64_t count, float* __restrict sums) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sums[i] += values[i];
}

/// The memory that a thread works with.
struct Scratch {
  explicit Scratch(const Geometry& g)
      : across(static_cast<std::size_t>(g.plane_floats())),
        sums(static_cast<std::size_t>(g.row)),
        z(g),
        a(g),
        b(g) {}
  std::vector<float> across, sums;
  Sheet z, a, b;
};

/// Calls body(y, sums) for every row, with the sums of `values` over the windows of its pixels.
template <class Body>
void for_window_sums(const Geometry& g, const Sheet& values, Reach ys, Reach xs, Scratch& scratch,
                     const Body& body) {
  float* across = scratch.across.data();
  std::fill_n(across, g.plane_floats(), 0.0F);
  for (std::int64_t y = 0; y < g.rows; ++y)
    for (std::int64_t d = -xs.below; d <= xs.above; ++d)
      add(values.row(y) + d * g.view.block, g.row, across + y * g.row);
  float* sums = scratch.sums.data();
  for (std::int64_t y = 0; y < g.rows; ++y) {
    std::fill_n(sums, g.row, 0.0F);
    const std::int64_t end = std::min(g.rows, y + ys.above + 1);
    for (std::int64_t from = std::max<std::int64_t>(0, y - ys.below); from < end; ++from)
      add(across + from * g.row, g.row, sums);
    body(y, static_cast<const float*>(sums));
  }
}

void subtract_means(const float* __restrict x, const float* __restrict sums, const float* __restrict columns,
                    float rows, std::int64_t count, float* __restrict z) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) z[i] = x[i] - sums[i] / (rows * columns[i]);
}

void square(const float* __restrict z, std::int64_t count, float* __restrict squares) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) squares[i] = z[i] * z[i];
}

/// Fills scratch.z with what is squared, and scratch.a with the squares.
void center(const WindowNorm& p, const Geometry& g, const float* src, Scratch& scratch) {
  for (std::int64_t y = 0; y < g.rows; ++y) std::copy_n(src + y * g.row, g.row, scratch.z.row(y));
  if (p.contrast)
    // Row y of z may change as soon as its sums are there: those of all rows along x are taken before.
    for_window_sums(g, scratch.z, g.y, g.x, scratch, [&](std::int64_t y, const float* sums) {
      subtract_means(src + y * g.row, sums, g.columns.data(), static_cast<float>(clipped(g.y, y, g.rows)),
                     g.row, scratch.z.row(y));
    });
  for (std::int64_t y = 0; y < g.rows; ++y) square(scratch.z.row(y), g.row, scratch.a.row(y));
}

float factor(const WindowNorm& p) { return p.scale / static_cast<float>(p.size * p.size); }

template <class Power>
void normalise(const WindowNorm& p, const Power& negative_power, const float* __restrict x,
               const float* __restrict sums, std::int64_t count, float* __restrict y) {
  const float scale = factor(p), min_div = p.min_div;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * negative_power(min_div + scale * sums[i]);
}

void forward_plane(const WindowNorm& p, const Geometry& g, const float* src, float* dst, Scratch& scratch) {
  center(p, g, src, scratch);
  for_window_sums(g, scratch.a, g.y, g.x, scratch, [&](std::int64_t y, const float* sums) {
    with_negative_power(p.power, [&](const auto& negative_power) {
      normalise(p, negative_power, src + y * g.row, sums, g.row, dst + y * g.row);
    });
  });
}

/// With the denominators d: direct = dy d^-power, ratios = dy x d^(-power-1).
template <class Power>
void differentiate(const WindowNorm& p, const Power& negative_power, const float* __restrict x,
                   const float* __restrict dy, const float* __restrict sums, std::int64_t count,
                   float* __restrict direct, float* __restrict ratios) {
  const float scale = factor(p), min_div = p.min_div;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float d = min_div + scale * sums[i];
    const float f = negative_power(d);
    direct[i] = dy[i] * f;
    // If d = 0, the neighbours must not see the NaN.
    ratios[i] = x[i] == 0 ? 0 : dy[i] * x[i] * f / d;
  }
}

/// through = slope z sums, added to dx; shares = through / the size of the clipped window.
void pass_back(float slope, const float* __restrict z, const float* __restrict sums,
               const float* __restrict columns, float rows, std::int64_t count, float* __restrict dx,
               float* __restrict shares) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float through = slope * z[i] * sums[i];
    dx[i] += through;
    shares[i] = through / (rows * columns[i]);
  }
}

void subtract(const float* __restrict values, std::int64_t count, float* __restrict from) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) from[i] -= values[i];
}

/// With through_j = -2 power scale/size^2 z_j sum over {p: j in window(p)} of dy_p x_p d_p^(-power-1):
/// dx_i = dy_i d_i^-power + through_i, and for contrast less the sum over {j: i in window(j)} of
/// through_j / |window(j)|.
void backward_plane(const WindowNorm& p, const Geometry& g, const float* src, const float* diff_dst,
                    float* diff_src, Scratch& scratch) {
  center(p, g, src, scratch);
  Sheet& ratios = scratch.b;
  for_window_sums(g, scratch.a, g.y, g.x, scratch, [&](std::int64_t y, const float* sums) {
    const std::int64_t at = y * g.row;
    with_negative_power(p.power, [&](const auto& negative_power) {
      differentiate(p, negative_power, src + at, diff_dst + at, sums, g.row, diff_src + at, ratios.row(y));
    });
  });
  Sheet& shares = scratch.a;
  const float slope = -2 * p.power * factor(p);
  for_window_sums(
      g, ratios, transposed(g.y), transposed(g.x), scratch, [&](std::int64_t y, const float* sums) {
        pass_back(slope, scratch.z.row(y), sums, g.columns.data(),
                  static_cast<float>(clipped(g.y, y, g.rows)), g.row, diff_src + y * g.row, shares.row(y));
      });
  if (!p.contrast) return;
  for_window_sums(g, shares, transposed(g.y), transposed(g.x), scratch,
                  [&](std::int64_t y, const float* sums) { subtract(sums, g.row, diff_src + y * g.row); });
}

/// Calls body(offset of the plane, scratch) for all planes, in parallel, then zeroes the padding of `result`.
template <class Body>
void for_planes(const Geometry& g, float* result, const Body& body) {
#pragma omp parallel if (g.view.size() >= kParallelElements)
  {
    Scratch scratch(g);
#pragma omp for schedule(static)
    for (std::int64_t plane = 0; plane < g.planes(); ++plane) {
      body(plane * g.plane_floats(), scratch);
      const std::int64_t blocks = g.view.padded_c / g.view.block;
      if (plane % blocks == blocks - 1) zero_padding(g.view, plane / blocks, 0, g.view.spatial, result);
    }
  }
}

/// `tensor` in a layout that can be walked: the hinted one, or plain.
Geometry geometry(const WindowNorm& p, TensorDesc& tensor) {
  if (p.size < 1 || p.h < 1 || p.w < 1) throw std::logic_error("rnorm: no pixels or an empty window");
  if (const auto view = activation_view(tensor)) return {p, *view};
  tensor.layout = nullptr;
  return {p, *activation_view(tensor)};
}

}  // namespace

Prepared prepare(const WindowNormForward& op, const LayoutHints& hints) {
  TensorDesc tensor{op.p.dims(), DataType::f32, hinted_layout(hints, 0)};
  const Geometry g = geometry(op.p, tensor);
  return std::make_shared<KernelOp>(argument_tensors(op, tensor.layout),
                                    [p = op.p, g](std::span<std::byte* const> args) {
                                      const float* src = as_floats(args[0]);
                                      float* dst = as_floats(args[1]);
                                      for_planes(g, dst, [&](std::int64_t at, Scratch& scratch) {
                                        forward_plane(p, g, src + at, dst + at, scratch);
                                      });
                                    });
}

Prepared prepare(const WindowNormBackward& op, const LayoutHints& hints) {
  TensorDesc tensor{op.p.dims(), DataType::f32, hinted_layout(hints, 0)};
  const Geometry g = geometry(op.p, tensor);
  return std::make_shared<KernelOp>(argument_tensors(op, tensor.layout),
                                    [p = op.p, g](std::span<std::byte* const> args) {
                                      const float* src = as_floats(args[0]);
                                      const float* diff_dst = as_floats(args[1]);
                                      float* diff_src = as_floats(args[2]);
                                      for_planes(g, diff_src, [&](std::int64_t at, Scratch& scratch) {
                                        backward_plane(p, g, src + at, diff_dst + at, diff_src + at, scratch);
                                      });
                                    });
}

}  // namespace convnet::cpu::own
