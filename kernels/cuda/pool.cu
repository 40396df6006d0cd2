// Pooling: a thread per output pixel forward and per input pixel backward, with four channels where they are
// neighbours in memory. Backward gathers: every input pixel adds up the windows that cover it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/windows.h"
#include "kernels/functors.h"

namespace convnet::cuda {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

/// PoolGeometry as kernels use it.
struct Geometry {
  Windows lines, places;  ///< along the columns of pixels, and along their rows
  int h, w, oh, ow;
  bool sum;

  explicit Geometry(const PoolGeometry& g)
      : lines(g.rows()),
        places(g.columns()),
        h(static_cast<int>(g.h)),
        w(static_cast<int>(g.w)),
        oh(static_cast<int>(g.oh)),
        ow(static_cast<int>(g.ow)),
        sum(g.sum) {}

  CONVNET_HD Range rows(int oy) const { return lines.window(oy, h); }
  CONVNET_HD Range columns(int ox) const { return places.window(ox, w); }
  /// Returns the factor for the sum of window (oy, ox): one division for all lanes.
  CONVNET_HD float share(int oy, int ox) const {
    const int pixels = rows(oy).count() * columns(ox).count();
    return sum || pixels == 0 ? 1.0F : 1 / static_cast<float>(pixels);
  }
};

/// Calls visit(pixel, position in the window) for the pixels of window (oy, ox), in row-major order. If Size
/// is not 0, windows are squares of that size, and the loops are unrolled.
template <int Size, class Visit>
CONVNET_DEVICE void for_pixels(const Geometry& g, int oy, int ox, const Visit& visit) {
  const int top = g.lines.origin(oy), left = g.places.origin(ox);
  if constexpr (Size == 0) {
    const Range rows = g.rows(oy), columns = g.columns(ox);
    for (int y = rows.begin; y < rows.end; ++y) {
      for (int x = columns.begin; x < columns.end; ++x)
        visit(y * g.w + x, (y - top) * g.places.size + x - left);
    }
  } else {
    CONVNET_UNROLL
    for (int dy = 0; dy < Size; ++dy) {
      CONVNET_UNROLL
      for (int dx = 0; dx < Size; ++dx) {
        const int y = top + dy, x = left + dx;
        if (y >= 0 && y < g.h && x >= 0 && x < g.w) visit(y * g.w + x, dy * Size + dx);
      }
    }
  }
}

/// Calls visit(oy, ox) for the windows that cover pixel (y, x), in row-major order. If Most is not 0, not
/// more than Most cover a pixel along one side, and the loops are unrolled.
template <int Most, class Visit>
CONVNET_DEVICE void for_covering(const Geometry& g, int y, int x, const Visit& visit) {
  const Range rows = g.lines.holding(y, g.oh), columns = g.places.holding(x, g.ow);
  const int row_count = Most > 0 ? Most : rows.count(), column_count = Most > 0 ? Most : columns.count();
  CONVNET_UNROLL
  for (int i = 0; i < row_count; ++i) {
    CONVNET_UNROLL
    for (int j = 0; j < column_count; ++j)
      if (rows.begin + i < rows.end && columns.begin + j < columns.end)
        visit(rows.begin + i, columns.begin + j);
  }
}

/// The pixels of a channel, or of a vector of channels, of one image: pixel s is at first + s * step.
struct Plane {
  std::int64_t first;
  int step;
  CONVNET_HD Plane(const View& view, const View::Place& at)
      : first(view.index(at.n, at.c, 0)), step(view.last ? static_cast<int>(view.c) : 1) {}
  CONVNET_HD std::int64_t operator[](int s) const { return first + static_cast<std::int64_t>(s) * step; }
};

/// Finds the maximum of every window. The first of equal values wins; a NaN beats every number, so that it is
/// not lost. A window without pixels gives 0.
template <PoolKind Kind, int Size, int Lanes, class Position, class T>
struct MaxForward {
  Geometry g;
  View src_view, dst_view;
  Numbers<T, Lanes> src, dst;
  Vector<Position, Lanes>* positions;  ///< null if they are not kept
  bool relu;

  CONVNET_DEVICE static float rank(float v) { return Kind == PoolKind::max_abs ? std::fabs(v) : v; }

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = dst_view.place(i);
    const Pixel o(dst_view, at);
    const Plane plane(src_view, at);
    const Range ys = g.rows(o.y), xs = g.columns(o.x);
    const bool empty = ys.count() == 0 || xs.count() == 0;
    // If no pixel beats this, all are this, and the first one wins.
    const float lowest = empty || Kind == PoolKind::max_abs ? 0.0F : kLowest;
    const int first =
        empty ? 0 : (ys.begin - g.lines.origin(o.y)) * g.places.size + xs.begin - g.places.origin(o.x);
    Vector<float, Lanes> best;
    Vector<int, Lanes> where;
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) {
      best.lane[lane] = lowest;
      where.lane[lane] = first;
    }
    for_pixels<Size>(g, o.y, o.x, [&](int pixel, int here) {
      const Vector<float, Lanes> v = src[plane[pixel]];
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane) {
        const bool better = beats(rank(v.lane[lane]), rank(best.lane[lane]));
        best.lane[lane] = better ? v.lane[lane] : best.lane[lane];
        where.lane[lane] = better ? here : where.lane[lane];
      }
    });
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes && relu; ++lane) {
      where.lane[lane] = best.lane[lane] > 0 ? where.lane[lane] : PoolGeometry::kNowhere;
      best.lane[lane] = ReluFunctor().forward(best.lane[lane]);
    }
    dst.set(i, best);
    if (positions == nullptr) return;
    Vector<Position, Lanes> kept;
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) kept.lane[lane] = static_cast<Position>(where.lane[lane]);
    positions[i] = kept;
  }
};

template <int Size, int Lanes, class T>
struct AverageForward {
  Geometry g;
  View src_view, dst_view;
  Numbers<T, Lanes> src, dst;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = dst_view.place(i);
    const Pixel o(dst_view, at);
    const Plane plane(src_view, at);
    Vector<float, Lanes> sum{};
    for_pixels<Size>(g, o.y, o.x, [&](int pixel, int) {
      const Vector<float, Lanes> v = src[plane[pixel]];
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane) sum.lane[lane] += v.lane[lane];
    });
    const float share = g.share(o.y, o.x);
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) sum.lane[lane] *= share;
    dst.set(i, sum);
  }
};

template <int Most, int Lanes, class Position, class T>
struct MaxBackward {
  Geometry g;
  View src_view, dst_view;
  Numbers<T, Lanes> diff_dst;
  const Vector<Position, Lanes>* positions;
  Numbers<T, Lanes> diff_src;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = src_view.place(i);
    const Pixel p(src_view, at);
    const Plane plane(dst_view, at);
    Vector<float, Lanes> sum{};
    for_covering<Most>(g, p.y, p.x, [&](int oy, int ox) {
      const std::int64_t o = plane[oy * g.ow + ox];
      const int here = (p.y - g.lines.origin(oy)) * g.places.size + p.x - g.places.origin(ox);
      const Vector<float, Lanes> diff = diff_dst[o];
      const Vector<Position, Lanes> where = positions[o];
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane)
        sum.lane[lane] += where.lane[lane] == here ? diff.lane[lane] : 0.0F;
    });
    diff_src.set(i, sum);
  }
};

template <int Most, int Lanes, class T>
struct AverageBackward {
  Geometry g;
  View src_view, dst_view;
  Numbers<T, Lanes> diff_dst, diff_src;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = src_view.place(i);
    const Pixel p(src_view, at);
    const Plane plane(dst_view, at);
    Vector<float, Lanes> sum{};
    for_covering<Most>(g, p.y, p.x, [&](int oy, int ox) {
      const Vector<float, Lanes> diff = diff_dst[plane[oy * g.ow + ox]];
      const float share = g.share(oy, ox);
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane) sum.lane[lane] += diff.lane[lane] * share;
    });
    diff_src.set(i, sum);
  }
};

template <int Value>
using Constant = std::integral_constant<int, Value>;

/// Calls f(lanes, number, position, stored) with the constants and types for which kernels are compiled.
/// `number` is passed on if it is 2 or 3 and channels are moved together, as in nearly all nets; otherwise 0
/// is. `position` is a value of the workspace's type, and `stored` a value of the type that stores `type`.
template <class F>
void dispatch(const PoolGeometry& g, int lanes, std::int64_t number, DataType type, const F& f) {
  constexpr Constant<kLanes> kTogether;
  constexpr Constant<1> kAlone;
  constexpr Constant<0> kAny;
  const bool small = g.workspace_type() == DataType::u8;
  with_stored_type(type, [&](auto stored) {
    if (lanes == 1)
      return small ? f(kAlone, kAny, std::uint8_t{}, stored) : f(kAlone, kAny, std::int32_t{}, stored);
    if (!small) return f(kTogether, kAny, std::int32_t{}, stored);
    switch (number) {
      case 2: return f(kTogether, Constant<2>{}, std::uint8_t{}, stored);
      case 3: return f(kTogether, Constant<3>{}, std::uint8_t{}, stored);
      default: return f(kTogether, kAny, std::uint8_t{}, stored);
    }
  });
}

/// The views of source and destination, in vectors of as many channels as both can be read by.
struct Views {
  Views(const TensorDesc& src_tensor, const TensorDesc& dst_tensor)
      : src(channels_view(src_tensor)), dst(channels_view(dst_tensor)) {
    lanes = lanes_of(src) < lanes_of(dst) ? lanes_of(src) : lanes_of(dst);
    src = in_vectors(src, lanes);
    dst = in_vectors(dst, lanes);
  }
  View src, dst;
  int lanes;
};

}  // namespace

template <>
Prepared prepare(const PoolForward& op, const OpForm& form, const Context&) {
  const PoolGeometry g = op.g;
  const TensorDesc &src = form.args[0], &dst = form.args[1];
  return std::make_shared<KernelOp>(
      form, [g, keep = op.keep_workspace, relu = op.relu, type = src.type, views = Views(src, dst)](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        const std::int64_t square = g.size.equal() ? g.size.x : 0;
        dispatch(g, views.lanes, square, type, [&](auto lanes, auto size, auto position, auto stored) {
          using Position = decltype(position);
          using T = decltype(stored);
          constexpr int kSize = size(), kWidth = lanes();
          const Numbers<T, kWidth> from(args[0]), to(args[1]);
          auto* positions = keep ? as_vectors<Position, kWidth>(args[2]) : nullptr;
          const Geometry geometry(g);
          switch (g.kind) {
            case PoolKind::max:
              return for_each(stream, views.dst.size(),
                              MaxForward<PoolKind::max, kSize, kWidth, Position, T>{
                                  geometry, views.src, views.dst, from, to, positions, relu});
            case PoolKind::max_abs:
              return for_each(stream, views.dst.size(),
                              MaxForward<PoolKind::max_abs, 0, kWidth, Position, T>{
                                  geometry, views.src, views.dst, from, to, positions, relu});
            case PoolKind::average:
              return for_each(stream, views.dst.size(),
                              AverageForward<kSize, kWidth, T>{geometry, views.src, views.dst, from, to});
          }
        });
      });
}

template <>
Prepared prepare(const PoolBackward& op, const OpForm& form, const Context&) {
  const PoolGeometry g = op.g;
  const TensorDesc &dst = form.args[0], &src = form.args.back();
  return std::make_shared<KernelOp>(form, [g, type = dst.type, views = Views(src, dst)](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    const auto covering = [](const WindowLine& line) { return (line.size + line.stride - 1) / line.stride; };
    const std::int64_t most_covering = std::max(covering(g.rows()), covering(g.columns()));
    dispatch(g, views.lanes, most_covering, type, [&](auto lanes, auto most, auto position, auto stored) {
      using Position = decltype(position);
      using T = decltype(stored);
      constexpr int kMost = most(), kWidth = lanes();
      const Numbers<T, kWidth> from(args[0]), to(args.back());
      // max_abs needs no kernel of its own: only the position of a maximum counts.
      if (g.keeps_workspace())
        for_each(stream, views.src.size(),
                 MaxBackward<kMost, kWidth, Position, T>{Geometry(g), views.src, views.dst, from,
                                                         as_vectors<Position, kWidth>(args[1]), to});
      else
        for_each(stream, views.src.size(),
                 AverageBackward<kMost, kWidth, T>{Geometry(g), views.src, views.dst, from, to});
    });
  });
}

}  // namespace convnet::cuda
