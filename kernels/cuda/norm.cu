// Response normalisation across and within maps, and maxima across maps.
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/windows.h"

namespace convnet::cuda {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// GPUs have instructions for the logarithm, wrong by 2^-21 near 1 and by 2 ulp elsewhere, and for quotients,
// wrong by 2 ulp. Exact ones take ten times as many, which would be more time than memory needs.
#if defined(__CUDA_ARCH__)
__device__ inline float logarithm(float x) { return __log2f(x); }
__device__ inline float quotient(float a, float b) { return __fdividef(a, b); }
#else
inline float logarithm(float x) { return std::log2(x); }
inline float quotient(float a, float b) { return a / b; }
#endif

/// x^p for x > 0, NaN for anything else. std::pow would be slower, and more exact than is of use.
CONVNET_HD inline float power(float x, float p) { return x > 0 ? std::exp2(p * logarithm(x)) : kNaN; }

/// y = x d^-power with the denominator d = min_div + factor * (sum of squares over the window), and its
/// gradient dx_i = dy_i d_i^-power + slope x_i * (sum of the ratios of all whose windows hold i).
struct Formula {
  float min_div, factor, exponent, slope;

  template <class Norm>
  Formula(const Norm& p, std::int64_t window)
      : min_div(p.min_div),
        factor(p.scale / static_cast<float>(window)),
        exponent(-p.power),
        slope(-2 * p.power * factor) {}

  CONVNET_HD float normalised(float x, float squares) const {
    return x * power(min_div + factor * squares, exponent);
  }
  struct Gradient {
    float direct, ratio;
  };
  CONVNET_HD Gradient gradient(float x, float dy, float squares) const {
    const float d = min_div + factor * squares;
    const float f = power(d, exponent);
    // If d = 0, the neighbours must not see the NaN.
    return {dy * f, x == 0 ? 0 : dy * x * quotient(f, d)};
  }
};

/// Returns the windows of `size` that begin size/2 before their middle.
Windows centred_windows(std::int64_t size) { return {-(size / 2), 1, size}; }

// Across maps, in general.

/// A window for each of `maps` maps.
struct MapWindows {
  Windows windows;
  int maps;
  bool blocked;

  explicit MapWindows(const CrossMapNorm& p)
      : windows(p.blocked ? Windows(0, p.size, p.size) : centred_windows(p.size)),
        maps(static_cast<int>(p.c)),
        blocked(p.blocked) {}

  CONVNET_HD Range window(std::int64_t c) const {
    const int map = static_cast<int>(c);
    return windows.window(blocked ? map / windows.size : map, maps);
  }
  /// Returns the maps whose windows hold c.
  CONVNET_HD Range holding(std::int64_t c) const {
    return blocked ? window(c) : windows.holding(static_cast<int>(c), maps);
  }
};

/// Return the sum of the squares, or of the values, of some maps at the pixel of `at`.
CONVNET_HD inline float sum_of_squares(const View& view, const View::Place& at, const Range& maps,
                                       const float* values) {
  float sum = 0;
  for (int c = maps.begin; c < maps.end; ++c) {
    const float v = values[view.index(at.n, c, at.s)];
    sum += v * v;
  }
  return sum;
}
CONVNET_HD inline float sum_of(const View& view, const View::Place& at, const Range& maps,
                               const float* values) {
  float sum = 0;
  for (int c = maps.begin; c < maps.end; ++c) sum += values[view.index(at.n, c, at.s)];
  return sum;
}

void wide_forward(Stream stream, const CrossMapNorm& p, const View& view, const float* src, float* dst) {
  const MapWindows windows(p);
  const Formula formula(p, p.size);
  for_each(stream, view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
    const View::Place at = view.place(i);
    dst[i] = formula.normalised(src[i], sum_of_squares(view, at, windows.window(at.c), src));
  });
}

void wide_backward(Stream stream, const CrossMapNorm& p, const View& view, const float* src,
                   const float* diff_dst, float* diff_src, float* ratios) {
  const MapWindows windows(p);
  const Formula formula(p, p.size);
  for_each(stream, view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
    const View::Place at = view.place(i);
    const Formula::Gradient g =
        formula.gradient(src[i], diff_dst[i], sum_of_squares(view, at, windows.window(at.c), src));
    diff_src[i] = g.direct;
    ratios[i] = g.ratio;
  });
  for_each(stream, view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
    const View::Place at = view.place(i);
    diff_src[i] += formula.slope * src[i] * sum_of(view, at, windows.holding(at.c), ratios);
  });
}

// Across maps, for maps that are neighbours in memory and windows of at most nine maps: a thread works on
// four maps, and has those around them in registers.

using Four = Vector<float, kLanes>;

/// The maps around those of a thread. Windows have Size maps, or, if Size is 0, as many as the operation
/// says; they reach at most Reach maps down and up. Halo is the number of vectors on each side of the
/// thread's own.
template <int Size, int Reach, int Halo>
struct Neighbours {
  static constexpr int kOwn = Halo * kLanes;  ///< index of the first of the thread's own maps
  using Values = float[2 * kOwn + kLanes];

  View view;  ///< the tensor, counted in vectors
  int maps_of_window;

  Neighbours(const CrossMapNorm& p, const View& elements)
      : view(in_vectors(elements, kLanes)), maps_of_window(static_cast<int>(p.size)) {}

  /// Return the number of maps that a window reaches down, and up. If Size is not 0, they are constants, so
  /// that the loops below consist of additions alone.
  CONVNET_DEVICE int below() const { return Size > 0 ? Size / 2 : maps_of_window / 2; }
  CONVNET_DEVICE int above() const { return (Size > 0 ? Size : maps_of_window) - 1 - below(); }

  /// Returns the index, among the vectors of its pixel, of vector i of the tensor.
  CONVNET_DEVICE int own(std::int64_t i) const { return static_cast<int>(view.place(i).c); }
  /// Loads vector i of the tensor, whose index in its pixel is `own`, and the Halo around it. Maps that do
  /// not exist are zeros.
  template <class T>
  CONVNET_DEVICE void load(const Numbers<T, kLanes>& tensor, std::int64_t i, int own, Values& values) const {
    CONVNET_UNROLL
    for (int k = -Halo; k <= Halo; ++k) {
      Four v{};
      if (own + k >= 0 && own + k < view.c) v = tensor[i + k];
      CONVNET_UNROLL
      for (int lane = 0; lane < kLanes; ++lane) values[kOwn + k * kLanes + lane] = v.lane[lane];
    }
  }
  /// Returns the sum of the squares over the window of value j.
  CONVNET_DEVICE float window_squares(const Values& values, int j) const {
    float sum = 0;
    CONVNET_UNROLL
    for (int k = -Reach; k <= Reach; ++k)
      if (k >= -below() && k <= above()) sum += values[j + k] * values[j + k];
    return sum;
  }
  /// Returns the sum of the values whose windows hold value j.
  CONVNET_DEVICE float holding_sum(const Values& values, int j) const {
    float sum = 0;
    CONVNET_UNROLL
    for (int k = -Reach; k <= Reach; ++k)
      if (k >= -above() && k <= below()) sum += values[j + k];
    return sum;
  }
};

template <class T, int Size, int Reach>
struct NarrowForward {
  using Maps = Neighbours<Size, Reach, 1>;
  Maps maps;
  Formula formula;
  Numbers<T, kLanes> src, dst;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    typename Maps::Values x;
    maps.load(src, i, maps.own(i), x);
    Four y;
    CONVNET_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) {
      const int j = Maps::kOwn + lane;
      y.lane[lane] = formula.normalised(x[j], maps.window_squares(x, j));
    }
    dst.set(i, y);
  }
};

/// Does everything in one kernel: recomputing the ratios of neighbouring maps is faster than reading them
/// from memory.
template <class T, int Size, int Reach>
struct NarrowBackward {
  using Maps = Neighbours<Size, Reach, (2 * Reach + kLanes - 1) / kLanes>;
  Maps maps;
  Formula formula;
  Numbers<T, kLanes> src, diff_dst, diff_src;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    typename Maps::Values x, dy, ratios;
    const int own = maps.own(i);
    maps.load(src, i, own, x);
    maps.load(diff_dst, i, own, dy);
    Four dx;
    CONVNET_UNROLL
    for (int j = Maps::kOwn - Reach; j < Maps::kOwn + kLanes + Reach; ++j) {
      const Formula::Gradient g = formula.gradient(x[j], dy[j], maps.window_squares(x, j));
      ratios[j] = g.ratio;
      if (j >= Maps::kOwn && j < Maps::kOwn + kLanes) dx.lane[j - Maps::kOwn] = g.direct;
    }
    CONVNET_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) {
      const int j = Maps::kOwn + lane;
      dx.lane[lane] += formula.slope * x[j] * maps.holding_sum(ratios, j);
    }
    diff_src.set(i, dx);
  }
};

/// Calls f(stored, size, reach) with the template arguments of a kernel for narrow windows (is_narrow()).
template <class F>
void with_type_and_window(const CrossMapNorm& p, DataType type, const F& f) {
  with_stored_type(type, [&](auto stored) {
    const auto known = [&](auto size) { f(stored, size, std::integral_constant<int, size() / 2>{}); };
    const std::integral_constant<int, 0> unknown;
    switch (p.size) {
      case 3: return known(std::integral_constant<int, 3>{});
      case 5: return known(std::integral_constant<int, 5>{});
      case 9: return known(std::integral_constant<int, 9>{});
      default: break;
    }
    if (p.size / 2 <= 2)
      f(stored, unknown, std::integral_constant<int, 2>{});
    else
      f(stored, unknown, std::integral_constant<int, 4>{});
  });
}

// Maxima across maps.

Windows windows_of(const CrossMapPool& p) { return {p.start, p.stride, p.size}; }

/// The maximum over some maps: the first of equal values wins, and a NaN beats every number. Without maps it
/// is 0, in map -1.
struct MapMaximum {
  float value = 0;
  int map = -1;
};
CONVNET_HD inline MapMaximum maximum(const View& view, const View::Place& at, const Range& maps,
                                     const float* values) {
  MapMaximum best;
  for (int c = maps.begin; c < maps.end; ++c) {
    const float v = values[view.index(at.n, c, at.s)];
    if (best.map < 0 || beats(v, best.value)) best = {v, c};
  }
  return best;
}

// Within maps.

/// A rectangle of windows or of pixels.
struct Rectangle {
  Range rows, columns;
  CONVNET_HD float pixels() const { return static_cast<float>(rows.count() * columns.count()); }
};

/// A window for each pixel of a map.
struct PixelWindows {
  View view;
  Windows windows;

  CONVNET_HD Rectangle window(const View::Place& at) const {
    const Pixel p(view, at);
    return {windows.window(p.y, static_cast<int>(view.h)), windows.window(p.x, static_cast<int>(view.w))};
  }
  /// Returns the pixels whose windows hold this one.
  CONVNET_HD Rectangle holding(const View::Place& at) const {
    const Pixel p(view, at);
    return {windows.holding(p.y, static_cast<int>(view.h)), windows.holding(p.x, static_cast<int>(view.w))};
  }
  /// Returns the sum of the values, or of their squares if Square, over some pixels of one map, row by row.
  template <bool Square>
  CONVNET_HD float sum(const View::Place& at, const Rectangle& pixels, const float* values) const {
    float sum = 0;
    for (int y = pixels.rows.begin; y < pixels.rows.end; ++y) {
      float row = 0;
      for (int x = pixels.columns.begin; x < pixels.columns.end; ++x) {
        const float v = values[view.index(at.n, at.c, y, x)];
        row += Square ? v * v : v;
      }
      sum += row;
    }
    return sum;
  }
};

/// z = x - mean of x's window.
void subtract_means(Stream stream, const PixelWindows& windows, const float* src, float* z) {
  for_each(stream, windows.view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
    const View::Place at = windows.view.place(i);
    const Rectangle window = windows.window(at);
    z[i] = src[i] - windows.sum<false>(at, window, src) / window.pixels();
  });
}

}  // namespace

template <>
Prepared prepare(const CrossMapNormForward& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  return std::make_shared<KernelOp>(form, [p = op.p, type = tensor.type, view = channels_view(tensor)](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    if (!is_narrow(p, view)) return wide_forward(stream, p, view, as_floats(args[0]), as_floats(args[1]));
    with_type_and_window(p, type, [&](auto stored, auto size, auto reach) {
      using T = decltype(stored);
      using Kernel = NarrowForward<T, size(), reach()>;
      for_each(stream, view.size() / kLanes,
               Kernel{typename Kernel::Maps(p, view), Formula(p, p.size), Numbers<T, kLanes>(args[0]),
                      Numbers<T, kLanes>(args[1])});
    });
  });
}

template <>
Prepared prepare(const CrossMapNormBackward& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  const View view = channels_view(tensor);
  return std::make_shared<KernelOp>(
      form, [p = op.p, type = tensor.type, view](Stream stream, std::span<std::byte* const> args,
                                                 std::byte* workspace) {
        if (!is_narrow(p, view))
          return wide_backward(stream, p, view, as_floats(args[0]), as_floats(args[1]), as_floats(args[2]),
                               as_floats(workspace));
        with_type_and_window(p, type, [&](auto stored, auto size, auto reach) {
          using T = decltype(stored);
          using Kernel = NarrowBackward<T, size(), reach()>;
          for_each(stream, view.size() / kLanes,
                   Kernel{typename Kernel::Maps(p, view), Formula(p, p.size), Numbers<T, kLanes>(args[0]),
                          Numbers<T, kLanes>(args[1]), Numbers<T, kLanes>(args[2])});
        });
      });
}

template <>
Prepared prepare(const CrossMapPoolForward& op, const OpForm& form, const Context&) {
  const TensorDesc &src_tensor = form.args[0], &dst_tensor = form.args[1];
  return std::make_shared<KernelOp>(form, [windows = windows_of(op.p), from = view_of(src_tensor),
                                           to = view_of(dst_tensor)](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    const float* src = as_floats(args[0]);
    float* dst = as_floats(args[1]);
    for_each(stream, to.size(), [=] CONVNET_DEVICE(std::int64_t i) {
      const View::Place at = to.place(i);
      dst[i] = maximum(from, at, windows.window(static_cast<int>(at.c), static_cast<int>(from.c)), src).value;
    });
  });
}

template <>
Prepared prepare(const CrossMapPoolBackward& op, const OpForm& form, const Context&) {
  const TensorDesc &src_tensor = form.args[0], &dst_tensor = form.args[1];
  return std::make_shared<KernelOp>(
      form, [windows = windows_of(op.p), from = view_of(src_tensor), to = view_of(dst_tensor)](
                Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const float* src = as_floats(args[0]);
        const float* diff_dst = as_floats(args[1]);
        float* diff_src = as_floats(args[2]);
        auto* maps = reinterpret_cast<std::int32_t*>(workspace);  // the maps that have the maxima
        for_each(stream, to.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = to.place(i);
          maps[i] =
              maximum(from, at, windows.window(static_cast<int>(at.c), static_cast<int>(from.c)), src).map;
        });
        for_each(stream, from.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = from.place(i);
          const Range outputs = windows.holding(static_cast<int>(at.c), static_cast<int>(to.c));
          float sum = 0;
          for (int o = outputs.begin; o < outputs.end; ++o) {
            const std::int64_t output = to.index(at.n, o, at.s);
            sum += maps[output] == at.c ? diff_dst[output] : 0.0F;
          }
          diff_src[i] = sum;
        });
      });
}

template <>
Prepared prepare(const WindowNormForward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [contrast = op.p.contrast, formula = Formula(op.p, op.p.size * op.p.size),
             windows = PixelWindows{view_of(form.args[0]), centred_windows(op.p.size)}](
                Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const float* src = as_floats(args[0]);
        float* dst = as_floats(args[1]);
        const float* z = contrast ? as_floats(workspace) : src;
        if (contrast) subtract_means(stream, windows, src, as_floats(workspace));
        for_each(stream, windows.view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = windows.view.place(i);
          dst[i] = formula.normalised(src[i], windows.sum<true>(at, windows.window(at), z));
        });
      });
}

/// Computes dx = direct + through with through_i = slope z_i * (sum of the ratios of all whose windows hold
/// i). For contrast normalisation, the sum over {j: i in window(j)} of through_j / |window(j)| is subtracted.
template <>
Prepared prepare(const WindowNormBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [contrast = op.p.contrast, formula = Formula(op.p, op.p.size * op.p.size),
             windows = PixelWindows{view_of(form.args[0]), centred_windows(op.p.size)}](
                Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const std::int64_t count = windows.view.size();
        const float* src = as_floats(args[0]);
        const float* diff_dst = as_floats(args[1]);
        float* diff_src = as_floats(args[2]);
        float* ratios = as_floats(workspace);
        float* centred = contrast ? ratios + count : nullptr;
        const float* z = contrast ? centred : src;
        if (contrast) subtract_means(stream, windows, src, centred);
        for_each(stream, count, [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = windows.view.place(i);
          const Formula::Gradient g =
              formula.gradient(src[i], diff_dst[i], windows.sum<true>(at, windows.window(at), z));
          diff_src[i] = g.direct;
          ratios[i] = g.ratio;
        });
        for_each(stream, count, [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = windows.view.place(i);
          const float through = formula.slope * z[i] * windows.sum<false>(at, windows.holding(at), ratios);
          diff_src[i] += through;
          // Only this thread still needs z[i].
          if (centred != nullptr) centred[i] = through / windows.window(at).pixels();
        });
        if (!contrast) return;
        for_each(stream, count, [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = windows.view.place(i);
          diff_src[i] -= windows.sum<false>(at, windows.holding(at), centred);
        });
      });
}

}  // namespace convnet::cuda
