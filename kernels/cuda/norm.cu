// Response normalisation across maps, and maxima across maps.
#include <type_traits>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/norm_formula.h"
#include "kernels/cuda/sizes.h"
#include "kernels/functors.h"

namespace convnet::cuda {
namespace {

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

/// The values of all maps at one pixel.
template <class T>
struct PixelMaps {
  const T* first;
  std::int64_t step;  ///< from one map to the next

  CONVNET_HD PixelMaps(const View& view, const View::Place& at, const T* values)
      : first(values + view.index(at.n, 0, at.s)), step(view.last ? 1 : view.spatial()) {}
  CONVNET_DEVICE float operator[](int c) const { return to_float(first[c * step]); }

  /// Return the sum of the squares, or of the values, of some maps.
  CONVNET_DEVICE float sum_of_squares(const Range& maps) const {
    float sum = 0;
    CONVNET_UNROLL_BY(4)
    for (int c = maps.begin; c < maps.end; ++c) sum += (*this)[c] * (*this)[c];
    return sum;
  }
  CONVNET_DEVICE float sum(const Range& maps) const {
    float sum = 0;
    CONVNET_UNROLL_BY(4)
    for (int c = maps.begin; c < maps.end; ++c) sum += (*this)[c];
    return sum;
  }
};

template <class T>
struct WideForward {
  View view;
  MapWindows windows;
  Formula formula;
  const T* src;
  T* dst;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = view.place(i);
    const float squares = PixelMaps<T>(view, at, src).sum_of_squares(windows.window(at.c));
    dst[i] = stored_as<T>(formula.normalised(to_float(src[i]), squares));
  }
};

/// The first kernel of the gradient.
template <class T>
struct WideRatios {
  View view;
  MapWindows windows;
  Formula formula;
  const T *src, *diff_dst;
  float *direct, *ratios;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = view.place(i);
    const float squares = PixelMaps<T>(view, at, src).sum_of_squares(windows.window(at.c));
    const Formula::Gradient g = formula.gradient(to_float(src[i]), to_float(diff_dst[i]), squares);
    direct[i] = g.direct;
    ratios[i] = g.ratio;
  }
};
template <class T>
struct WideBackward {
  View view;
  MapWindows windows;
  Formula formula;
  const T* src;
  const float *direct, *ratios;
  T* diff_src;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = view.place(i);
    const float sum = PixelMaps<float>(view, at, ratios).sum(windows.holding(at.c));
    diff_src[i] = stored_as<T>(direct[i] + formula.slope * to_float(src[i]) * sum);
  }
};

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
template <class T>
CONVNET_DEVICE MapMaximum maximum(const PixelMaps<T>& values, const Range& maps) {
  MapMaximum best;
  CONVNET_UNROLL_BY(4)
  for (int c = maps.begin; c < maps.end; ++c) {
    const float v = values[c];
    if (best.map < 0 || beats(v, best.value)) best = {v, c};
  }
  return best;
}

/// Writes the maxima, or, if Maps, the maps that have them.
template <class T, bool Maps>
struct MapMaxima {
  Windows windows;
  View from, to;
  const T* src;
  std::conditional_t<Maps, std::int32_t, T>* dst;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = to.place(i);
    const Range window = windows.window(static_cast<int>(at.c), static_cast<int>(from.c));
    const MapMaximum best = maximum(PixelMaps<T>(from, at, src), window);
    if constexpr (Maps)
      dst[i] = best.map;
    else
      dst[i] = stored_as<T>(best.value);
  }
};

template <class T>
struct MapMaximaBackward {
  Windows windows;
  View from, to;
  const std::int32_t* maps;  ///< that have the maxima
  const T* diff_dst;
  T* diff_src;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = from.place(i);
    const Range outputs = windows.holding(static_cast<int>(at.c), static_cast<int>(to.c));
    const std::int64_t first = to.index(at.n, 0, at.s), step = to.last ? 1 : to.spatial();
    float sum = 0;
    CONVNET_UNROLL_BY(4)
    for (int o = outputs.begin; o < outputs.end; ++o)
      sum += maps[first + o * step] == at.c ? to_float(diff_dst[first + o * step]) : 0.0F;
    diff_src[i] = stored_as<T>(sum);
  }
};

}  // namespace

template <>
Prepared prepare(const CrossMapNormForward& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  return std::make_shared<KernelOp>(form, [p = op.p, type = tensor.type, view = channels_view(tensor)](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    if (!is_narrow(p, view))
      return with_stored_type(type, [&](auto stored) {
        using T = decltype(stored);
        for_each(stream, view.size(),
                 WideForward<T>{view, MapWindows(p), Formula(p, p.size), reinterpret_cast<const T*>(args[0]),
                                reinterpret_cast<T*>(args[1])});
      });
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
  return std::make_shared<KernelOp>(
      form, [p = op.p, type = tensor.type, view = channels_view(tensor)](
                Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        if (!is_narrow(p, view))
          return with_stored_type(type, [&](auto stored) {
            using T = decltype(stored);
            const auto* src = reinterpret_cast<const T*>(args[0]);
            float *ratios = as_floats(workspace), *direct = ratios + view.size();
            for_each(stream, view.size(),
                     WideRatios<T>{view, MapWindows(p), Formula(p, p.size), src,
                                   reinterpret_cast<const T*>(args[1]), direct, ratios});
            for_each(stream, view.size(),
                     WideBackward<T>{view, MapWindows(p), Formula(p, p.size), src, direct, ratios,
                                     reinterpret_cast<T*>(args[2])});
          });
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
  return std::make_shared<KernelOp>(
      form, [windows = windows_of(op.p), from = view_of(form.args[0]), to = view_of(form.args[1]),
             type = form.args[0].type](Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          for_each(stream, to.size(),
                   MapMaxima<T, false>{windows, from, to, reinterpret_cast<const T*>(args[0]),
                                       reinterpret_cast<T*>(args[1])});
        });
      });
}

template <>
Prepared prepare(const CrossMapPoolBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form,
      [windows = windows_of(op.p), from = view_of(form.args[0]), to = view_of(form.args[1]),
       type = form.args[0].type](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        auto* maps = reinterpret_cast<std::int32_t*>(workspace);
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          for_each(stream, to.size(),
                   MapMaxima<T, true>{windows, from, to, reinterpret_cast<const T*>(args[0]), maps});
          for_each(stream, from.size(),
                   MapMaximaBackward<T>{windows, from, to, maps, reinterpret_cast<const T*>(args[1]),
                                        reinterpret_cast<T*>(args[2])});
        });
      });
}

}  // namespace convnet::cuda
