// Response and contrast normalisation within maps. A plane is one map of an image, or a block of maps that
// are stored together; a pixel then has as many floats as the block has maps. Sums over windows are taken
// along rows, then along columns. They are not running sums, which would lose digits.
#include <stdexcept>

#include "kernels/cpu/own_kernel.h"
#include "kernels/cpu/power.h"

namespace convnet::cpu::own {
namespace {

/// The window of pixel p along one side: [p - below, p + above], clipped.
struct Reach {
  std::int64_t below, above;
};
Reach reach(const WindowNorm& p, std::int64_t side) {
  return {std::min(p.size / 2, side - 1), std::min(p.size - 1 - p.size / 2, side - 1)};
}
/// Returns the reach of the pixels whose windows hold a pixel: as far up as windows reach down.
Reach transposed(Reach r) { return {r.above, r.below}; }

/// Returns the number of pixels in the clipped window of pixel `at`.
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
  std::int64_t plane_size() const { return rows * row; }

  ActivationView view;
  std::int64_t rows, row;  ///< number of rows of a plane, and of numbers of a row
  Reach y, x;
  std::int64_t halo, stride;   ///< zeros on both sides of the rows of a sheet; distance between rows
  std::vector<float> columns;  ///< for each number of a row, the number of columns of its clipped window
};

/// A plane in scratch memory. Zeros surround each row.
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

/// The memory that a thread works with.
struct Scratch {
  explicit Scratch(const Geometry& g)
      : across(static_cast<std::size_t>(g.plane_size())),
        sums(static_cast<std::size_t>(g.row)),
        z(g),
        a(g),
        b(g),
        gradient(g) {}
  std::vector<float> across, sums;
  Sheet z, a, b, gradient;
};

/// Calls body(y, sums) for every row, with the sums of `values` over the windows of its pixels.
template <class Body>
void for_window_sums(const Geometry& g, const Sheet& values, Reach ys, Reach xs, Scratch& scratch,
                     const Body& body) {
  float* across = scratch.across.data();
  std::fill_n(across, g.plane_size(), 0.0F);
  for (std::int64_t y = 0; y < g.rows; ++y)
    for (std::int64_t d = -xs.below; d <= xs.above; ++d)
      add_scaled(values.row(y) + d * g.view.block, 1, g.row, across + y * g.row);
  float* sums = scratch.sums.data();
  for (std::int64_t y = 0; y < g.rows; ++y) {
    std::fill_n(sums, g.row, 0.0F);
    const std::int64_t end = std::min(g.rows, y + ys.above + 1);
    for (std::int64_t from = std::max<std::int64_t>(0, y - ys.below); from < end; ++from)
      add_scaled(across + from * g.row, 1, g.row, sums);
    body(y, static_cast<const float*>(sums));
  }
}

template <class T>
void subtract_means(const T* __restrict x, const float* __restrict sums, const float* __restrict columns,
                    float rows, std::int64_t count, float* __restrict z) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) z[i] = to_float(x[i]) - sums[i] / (rows * columns[i]);
}

void square(const float* __restrict z, std::int64_t count, float* __restrict squares) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) squares[i] = z[i] * z[i];
}

/// Fills scratch.z with the input, less the means of its windows if `p.contrast`, and scratch.a with the
/// squares.
template <class T>
void center(const WindowNorm& p, const Geometry& g, const T* src, Scratch& scratch) {
  for (std::int64_t y = 0; y < g.rows; ++y)
    std::transform(src + y * g.row, src + (y + 1) * g.row, scratch.z.row(y), [](T x) { return to_float(x); });
  if (p.contrast)
    // Row y of z may change as soon as its sums are known, because the sums along x of all rows come first.
    for_window_sums(g, scratch.z, g.y, g.x, scratch, [&](std::int64_t y, const float* sums) {
      subtract_means(src + y * g.row, sums, g.columns.data(), static_cast<float>(clipped(g.y, y, g.rows)),
                     g.row, scratch.z.row(y));
    });
  for (std::int64_t y = 0; y < g.rows; ++y) square(scratch.z.row(y), g.row, scratch.a.row(y));
}

float factor(const WindowNorm& p) { return p.scale / static_cast<float>(p.size * p.size); }

template <class T, class Powers>
void normalise(const WindowNorm& p, const Powers& powers_of, const T* __restrict x,
               const float* __restrict sums, std::int64_t count, T* __restrict y) {
  const float scale = factor(p), min_div = p.min_div;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = stored_as<T>(to_float(x[i]) * powers_of(min_div + scale * sums[i]).power);
}

template <class T>
void forward_plane(const WindowNorm& p, const Geometry& g, const T* src, T* dst, Scratch& scratch) {
  center(p, g, src, scratch);
  for_window_sums(g, scratch.a, g.y, g.x, scratch, [&](std::int64_t y, const float* sums) {
    with_negative_powers<float>(p.power, [&](const auto& powers_of) {
      normalise(p, powers_of, src + y * g.row, sums, g.row, dst + y * g.row);
    });
  });
}

/// Computes direct = dy d^-power and ratios = direct x / d, with the denominators d.
template <class T, class Powers>
void differentiate(const WindowNorm& p, const Powers& powers_of, const T* __restrict x,
                   const T* __restrict dy, const float* __restrict sums, std::int64_t count,
                   float* __restrict direct, float* __restrict ratios) {
  const float scale = factor(p), min_div = p.min_div;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const NegativePowers d = powers_of(min_div + scale * sums[i]);
    const float value = to_float(x[i]), diff = to_float(dy[i]);
    direct[i] = diff * d.power;
    // If the denominator is 0, the neighbours must not see the NaN.
    ratios[i] = value == 0 ? 0 : direct[i] * value * d.inverse;
  }
}

/// Adds through = slope z sums to dx, and computes shares = through / the size of the clipped window.
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

/// Computes the gradient. With through_j = -2 power scale/size^2 z_j sum over {p: j in window(p)} of dy_p x_p
/// d_p^(-power-1): dx_i = dy_i d_i^-power + through_i, and for contrast less the sum over {j: i in window(j)}
/// of through_j / |window(j)|.
template <class T>
void backward_plane(const WindowNorm& p, const Geometry& g, const T* src, const T* diff_dst, T* diff_src,
                    Scratch& scratch) {
  center(p, g, src, scratch);
  Sheet &ratios = scratch.b, &dx = scratch.gradient;
  for_window_sums(g, scratch.a, g.y, g.x, scratch, [&](std::int64_t y, const float* sums) {
    const std::int64_t at = y * g.row;
    with_negative_powers<float>(p.power, [&](const auto& powers_of) {
      differentiate(p, powers_of, src + at, diff_dst + at, sums, g.row, dx.row(y), ratios.row(y));
    });
  });
  Sheet& shares = scratch.a;
  const float slope = -2 * p.power * factor(p);
  for_window_sums(g, ratios, transposed(g.y), transposed(g.x), scratch,
                  [&](std::int64_t y, const float* sums) {
                    pass_back(slope, scratch.z.row(y), sums, g.columns.data(),
                              static_cast<float>(clipped(g.y, y, g.rows)), g.row, dx.row(y), shares.row(y));
                  });
  if (p.contrast)
    for_window_sums(g, shares, transposed(g.y), transposed(g.x), scratch,
                    [&](std::int64_t y, const float* sums) { subtract(sums, g.row, dx.row(y)); });
  for (std::int64_t y = 0; y < g.rows; ++y)
    std::transform(dx.row(y), dx.row(y) + g.row, diff_src + y * g.row,
                   [](float v) { return stored_as<T>(v); });
}

/// Calls body(offset of the plane, scratch) for all planes, in parallel, then zeroes the padding of `result`.
template <class T, class Body>
void for_planes(const Geometry& g, T* result, const Body& body) {
#pragma omp parallel if (g.view.size() >= kParallelElements)
  {
    Scratch scratch(g);
#pragma omp for schedule(static)
    for (std::int64_t plane = 0; plane < g.planes(); ++plane) {
      body(plane * g.plane_size(), scratch);
      const std::int64_t blocks = g.view.padded_c / g.view.block;
      if (plane % blocks == blocks - 1) zero_padding(g.view, plane / blocks, 0, g.view.spatial, result);
    }
  }
}

Geometry geometry(const WindowNorm& p, const TensorDesc& tensor) {
  if (p.size < 1 || p.h < 1 || p.w < 1) throw std::logic_error("rnorm: no pixels or an empty window");
  return {p, *activation_view(tensor)};
}

}  // namespace

Prepared prepare(const WindowNormForward& op, const LayoutHints& hints) {
  const TensorDesc tensor = walkable(op.p.dims(), hints);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor),
      [p = op.p, g = geometry(op.p, tensor), type = tensor.type](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          const T* src = as<T>(args[0]);
          T* dst = as<T>(args[1]);
          for_planes(g, dst, [&](std::int64_t at, Scratch& scratch) {
            forward_plane(p, g, src + at, dst + at, scratch);
          });
        });
      });
}

Prepared prepare(const WindowNormBackward& op, const LayoutHints& hints) {
  const TensorDesc tensor = walkable(op.p.dims(), hints);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor),
      [p = op.p, g = geometry(op.p, tensor), type = tensor.type](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          const T *src = as<T>(args[0]), *diff_dst = as<T>(args[1]);
          T* diff_src = as<T>(args[2]);
          for_planes(g, diff_src, [&](std::int64_t at, Scratch& scratch) {
            backward_plane(p, g, src + at, diff_dst + at, diff_src + at, scratch);
          });
        });
      });
}

}  // namespace convnet::cpu::own
