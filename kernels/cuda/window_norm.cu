// Response normalisation within maps. Sums over large windows are those of sums over their rows, which a
// launch before computes, so that the work grows with the side of the window, not with its area; both ways
// add in the same order. A thread works on several channels where these lie beside each other.
#include <type_traits>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/norm_formula.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {
namespace {

/// A rectangle of windows or of pixels.
struct Rectangle {
  Range rows, columns;
  CONVNET_HD float pixels() const { return static_cast<float>(rows.count() * columns.count()); }
};

template <int Lanes>
CONVNET_DEVICE void add(Vector<float, Lanes>& sum, const Vector<float, Lanes>& more) {
  CONVNET_UNROLL
  for (int lane = 0; lane < Lanes; ++lane) sum.lane[lane] += more.lane[lane];
}

/// A window for each pixel of a map.
struct PixelWindows {
  View view;  ///< counted in vectors of channels
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
  /// Returns the distance in memory from a pixel to the next one of its map.
  CONVNET_HD std::int64_t step() const { return view.last ? view.c : 1; }

  /// Returns the sum of the values, or of their squares if Square, from `first` on, a row.
  template <bool Square, class T, int Lanes>
  CONVNET_DEVICE Vector<float, Lanes> row(std::int64_t first, int count,
                                          const Numbers<T, Lanes>& values) const {
    Vector<float, Lanes> sum{};
    CONVNET_UNROLL_BY(4)
    for (int x = 0; x < count; ++x) {
      Vector<float, Lanes> v = values[first + x * step()];
      if constexpr (Square) {
        CONVNET_UNROLL
        for (int lane = 0; lane < Lanes; ++lane) v.lane[lane] *= v.lane[lane];
      }
      add(sum, v);
    }
    return sum;
  }
  /// Returns the sum over a rectangle, row by row. `rows` has the sums of its rows, at the places of `at` in
  /// them, if it is given.
  template <bool Square, class T, int Lanes>
  CONVNET_DEVICE Vector<float, Lanes> sum(const View::Place& at, const Rectangle& pixels,
                                          const Numbers<T, Lanes>& values,
                                          const Numbers<float, Lanes>& rows) const {
    Vector<float, Lanes> sum{};
    const Pixel own(view, at);
    CONVNET_UNROLL_BY(1)
    for (int y = pixels.rows.begin; y < pixels.rows.end; ++y) {
      if (rows.memory != nullptr)
        add(sum, rows[view.index(at.n, at.c, y, own.x)]);
      else
        add(sum,
            row<Square>(view.index(at.n, at.c, y, pixels.columns.begin), pixels.columns.count(), values));
    }
    return sum;
  }
};

/// Sums over the rows of windows, or of the windows that hold a pixel.
template <class T, int Lanes, bool Square, bool Holding>
struct RowSums {
  PixelWindows windows;
  Numbers<T, Lanes> values;
  Numbers<float, Lanes> rows;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = windows.view.place(i);
    const Rectangle pixels = Holding ? windows.holding(at) : windows.window(at);
    const Pixel own(windows.view, at);
    rows.set(i, windows.row<Square>(windows.view.index(at.n, at.c, own.y, pixels.columns.begin),
                                    pixels.columns.count(), values));
  }
};

/// z = x - mean of x's window.
template <class T, int Lanes>
struct SubtractMeans {
  PixelWindows windows;
  Numbers<T, Lanes> src;
  Numbers<float, Lanes> rows, z;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = windows.view.place(i);
    const Rectangle window = windows.window(at);
    const Vector<float, Lanes> sum = windows.sum<false>(at, window, src, rows);
    Vector<float, Lanes> x = src[i];
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) x.lane[lane] -= sum.lane[lane] / window.pixels();
    z.set(i, x);
  }
};

/// Z is the type of z, which is x or what SubtractMeans makes of it.
template <class T, class Z, int Lanes>
struct WindowForward {
  PixelWindows windows;
  Formula formula;
  Numbers<T, Lanes> src;
  Numbers<Z, Lanes> z;
  Numbers<float, Lanes> rows;
  Numbers<T, Lanes> dst;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = windows.view.place(i);
    const Vector<float, Lanes> squares = windows.sum<true>(at, windows.window(at), z, rows);
    Vector<float, Lanes> x = src[i];
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane)
      x.lane[lane] = formula.normalised(x.lane[lane], squares.lane[lane]);
    dst.set(i, x);
  }
};

template <class T, class Z, int Lanes>
struct WindowRatios {
  PixelWindows windows;
  Formula formula;
  Numbers<T, Lanes> src, diff_dst;
  Numbers<Z, Lanes> z;
  Numbers<float, Lanes> rows, direct, ratios;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = windows.view.place(i);
    const Vector<float, Lanes> squares = windows.sum<true>(at, windows.window(at), z, rows);
    Vector<float, Lanes> x = src[i], dy = diff_dst[i];
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) {
      const Formula::Gradient g = formula.gradient(x.lane[lane], dy.lane[lane], squares.lane[lane]);
      x.lane[lane] = g.direct;
      dy.lane[lane] = g.ratio;
    }
    direct.set(i, x);
    ratios.set(i, dy);
  }
};

/// Adds through_i = slope z_i * (sum of the ratios of all whose windows hold i) to the direct part. With
/// Contrast, through_i / |window(i)| takes the place of z_i, which only this thread still needs.
template <class Z, class D, int Lanes, bool Contrast>
struct WindowThrough {
  PixelWindows windows;
  Formula formula;
  Numbers<Z, Lanes> z;
  Numbers<float, Lanes> ratios, rows, direct;
  Numbers<D, Lanes> sum;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = windows.view.place(i);
    const Vector<float, Lanes> of_ratios = windows.sum<false>(at, windows.holding(at), ratios, rows);
    Vector<float, Lanes> d = direct[i], through = z[i];
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) {
      through.lane[lane] = formula.slope * through.lane[lane] * of_ratios.lane[lane];
      d.lane[lane] += through.lane[lane];
    }
    sum.set(i, d);
    if constexpr (Contrast) {
      const float pixels = windows.window(at).pixels();
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane) through.lane[lane] /= pixels;
      z.set(i, through);
    }
  }
};

/// Subtracts the sum over {j: i in window(j)} of through_j / |window(j)|.
template <class T, int Lanes>
struct WindowRest {
  PixelWindows windows;
  Numbers<float, Lanes> shares, rows, sum;
  Numbers<T, Lanes> diff_src;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = windows.view.place(i);
    const Vector<float, Lanes> of_shares = windows.sum<false>(at, windows.holding(at), shares, rows);
    Vector<float, Lanes> d = sum[i];
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) d.lane[lane] -= of_shares.lane[lane];
    diff_src.set(i, d);
  }
};

/// The launches of an operation, for tensors of type T in vectors of Lanes channels.
template <class T, int Lanes>
class WindowLaunches {
 public:
  using Values = Numbers<T, Lanes>;
  using Floats = Numbers<float, Lanes>;

  WindowLaunches(Stream stream, const WindowNorm& p, const View& view, std::byte* workspace)
      : stream_(stream),
        windows_{in_vectors(view, Lanes), centred_windows(p.size)},
        formula_(p, p.size * p.size),
        separate_(sums_rows(p)),
        next_(workspace),
        rows_(separate_ ? take() : Floats(nullptr)) {}

  /// Returns workspace for a tensor of floats.
  Floats take() {
    const Floats area(next_);
    next_ += windows_.view.size() * static_cast<std::int64_t>(sizeof(Vector<float, Lanes>));
    return area;
  }
  /// Runs a kernel that sums over windows, after the sums over their rows.
  template <bool Square, bool Holding, class V, class Kernel>
  void run(const Numbers<V, Lanes>& summed, const Kernel& kernel) {
    if (separate_)
      for_each(stream_, windows_.view.size(), RowSums<V, Lanes, Square, Holding>{windows_, summed, rows_});
    for_each(stream_, windows_.view.size(), kernel);
  }

  Floats subtract_means(const Values& src) {
    const Floats z = take();
    run<false, false>(src, SubtractMeans<T, Lanes>{windows_, src, rows_, z});
    return z;
  }
  template <class Z>
  void forward(const Values& src, const Numbers<Z, Lanes>& z, const Values& dst) {
    run<true, false>(z, WindowForward<T, Z, Lanes>{windows_, formula_, src, z, rows_, dst});
  }
  /// Computes dx = direct + through, less a rest for contrast normalisation.
  template <class Z>
  void backward(const Values& src, const Values& diff_dst, const Numbers<Z, Lanes>& z, const Values& diff_src,
                bool contrast) {
    const Floats direct = take(), ratios = take();
    run<true, false>(z,
                     WindowRatios<T, Z, Lanes>{windows_, formula_, src, diff_dst, z, rows_, direct, ratios});
    if constexpr (std::is_same_v<Z, float>)
      if (contrast) {
        run<false, true>(ratios, WindowThrough<Z, float, Lanes, true>{windows_, formula_, z, ratios, rows_,
                                                                      direct, direct});
        return run<false, true>(z, WindowRest<T, Lanes>{windows_, z, rows_, direct, diff_src});
      }
    run<false, true>(
        ratios, WindowThrough<Z, T, Lanes, false>{windows_, formula_, z, ratios, rows_, direct, diff_src});
  }

 private:
  Stream stream_;
  PixelWindows windows_;
  Formula formula_;
  bool separate_;
  std::byte* next_;
  Floats rows_;  ///< sums over rows; null if they are not computed first
};

/// Calls f(launches) with the launches of an operation.
template <class F>
void with_launches(Stream stream, const WindowNorm& p, const TensorDesc& tensor, std::byte* workspace,
                   const F& f) {
  const View view = channels_view(tensor);
  with_stored_type(tensor.type, [&](auto stored) {
    using T = decltype(stored);
    if (lanes_of(view) == kLanes) {
      WindowLaunches<T, kLanes> launches(stream, p, view, workspace);
      f(launches);
    } else {
      WindowLaunches<T, 1> launches(stream, p, view, workspace);
      f(launches);
    }
  });
}

}  // namespace

template <>
Prepared prepare(const WindowNormForward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [p = op.p, tensor = form.args[0]](Stream stream, std::span<std::byte* const> args,
                                              std::byte* workspace) {
        with_launches(stream, p, tensor, workspace, [&](auto& launches) {
          using Values = typename std::remove_reference_t<decltype(launches)>::Values;
          const Values src(args[0]), dst(args[1]);
          if (p.contrast)
            launches.forward(src, launches.subtract_means(src), dst);
          else
            launches.forward(src, src, dst);
        });
      });
}

template <>
Prepared prepare(const WindowNormBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [p = op.p, tensor = form.args[0]](Stream stream, std::span<std::byte* const> args,
                                              std::byte* workspace) {
        with_launches(stream, p, tensor, workspace, [&](auto& launches) {
          using Values = typename std::remove_reference_t<decltype(launches)>::Values;
          const Values src(args[0]), diff_dst(args[1]), diff_src(args[2]);
          if (p.contrast)
            launches.backward(src, diff_dst, launches.subtract_means(src), diff_src, true);
          else
            launches.backward(src, diff_dst, src, diff_src, false);
        });
      });
}

}  // namespace convnet::cuda
