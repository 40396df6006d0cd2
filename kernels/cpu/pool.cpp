// Pooling over plain and blocked activations. One own kernel for all cases, with none of oneDNN's limits:
// windows that start inside the image, sums, windows outside the image, NaN. On blocked layouts it takes 1
// to 1.4 times oneDNN's time forward and 1.3 to 1.8 backward, about that of copying the image; plain ones are
// several times slower.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/prepare.h"

namespace convnet::cpu {
namespace {

/// The pixels [begin, end) of one side that window `i` covers, and the window's origin.
struct Extent {
  std::int64_t origin, begin, end;
};
Extent extent(const PoolGeometry& g, std::int64_t i, std::int64_t side) {
  const std::int64_t origin = g.start + g.stride * i;
  return {origin, std::clamp<std::int64_t>(origin, 0, side),
          std::clamp<std::int64_t>(origin + g.size, 0, side)};
}

std::int64_t pixels(const Extent& y, const Extent& x) { return (y.end - y.begin) * (x.end - x.begin); }

/// `Block` channels in registers: compilers do not keep arrays there.
template <int Block>
struct Lanes {
  typedef float Float __attribute__((vector_size(Block * sizeof(float))));
  typedef std::int32_t Int __attribute__((vector_size(Block * sizeof(std::int32_t))));

  template <class Position>
  static void store_positions(const Int& where, Position* p) {
    typedef Position Positions __attribute__((vector_size(Block * sizeof(Position))));
    const Positions narrow = __builtin_convertvector(where, Positions);
    std::memcpy(p, &narrow, sizeof narrow);
  }
  template <class Position>
  static void load_positions(const Position* p, Int& where) {
    typedef Position Positions __attribute__((vector_size(Block * sizeof(Position))));
    Positions narrow;
    std::memcpy(&narrow, p, sizeof narrow);
    where = __builtin_convertvector(narrow, Int);
  }
};

template <>
struct Lanes<1> {
  using Float = float;
  using Int = std::int32_t;

  template <class Position>
  static void store_positions(Int where, Position* p) {
    *p = static_cast<Position>(where);
  }
  template <class Position>
  static void load_positions(const Position* p, Int& where) {
    where = *p;
  }
};

template <class Vector>
void load(const float* p, Vector& v) {
  std::memcpy(&v, p, sizeof v);
}
template <class Vector>
void store(float* p, const Vector& v) {
  std::memcpy(p, &v, sizeof v);
}

/// Calls visit(pixel, position in the window) for the pixels of a window.
template <class Visit>
void for_each_pixel(const PoolGeometry& g, const Extent& ys, const Extent& xs, const Visit& visit) {
  for (std::int64_t y = ys.begin; y < ys.end; ++y)
    for (std::int64_t x = xs.begin; x < xs.end; ++x)
      visit(y * g.w + x, static_cast<std::int32_t>((y - ys.origin) * g.size + x - xs.origin));
}

/// Max of one window for `Block` channels. The first of equal values wins; a NaN beats every number, so that
/// it is not lost. A window without pixels gives 0.
template <int Block, class Position>
void max_window(const PoolGeometry& g, const float* src, const Extent& ys, const Extent& xs, float* dst,
                Position* position) {
  using L = Lanes<Block>;
  using Float = typename L::Float;
  using Int = typename L::Int;
  Float best{};
  Int where{};
  if (pixels(ys, xs) > 0) {
    load(src + (ys.begin * g.w + xs.begin) * Block, best);
    where += static_cast<std::int32_t>((ys.begin - ys.origin) * g.size + xs.begin - xs.origin);
  }
  for_each_pixel(g, ys, xs, [&](std::int64_t pixel, std::int32_t here) {
    Float v;
    load(src + pixel * Block, v);
    const auto better = (v > best) | ((v != v) & (best == best));
    best = better ? v : best;
    where = better ? Int{} + here : where;
  });
  store(dst, best);
  if (position != nullptr) L::store_positions(where, position);
}

/// What the sum of a window is divided by.
float divisor(const PoolGeometry& g, const Extent& ys, const Extent& xs) {
  return g.sum ? 1.0F : static_cast<float>(std::max<std::int64_t>(pixels(ys, xs), 1));
}

template <int Block>
void average_window(const PoolGeometry& g, const float* src, const Extent& ys, const Extent& xs, float* dst) {
  using Float = typename Lanes<Block>::Float;
  Float sum{};
  for_each_pixel(g, ys, xs, [&](std::int64_t pixel, std::int32_t) {
    Float v;
    load(src + pixel * Block, v);
    sum += v;
  });
  store(dst, Float(sum / divisor(g, ys, xs)));
}

template <int Block, class Position>
void max_window_backward(const PoolGeometry& g, const float* diff_dst, const Position* position,
                         const Extent& ys, const Extent& xs, float* diff_src) {
  using L = Lanes<Block>;
  using Float = typename L::Float;
  using Int = typename L::Int;
  Float diff;
  load(diff_dst, diff);
  Int where;
  L::load_positions(position, where);
  for_each_pixel(g, ys, xs, [&](std::int64_t pixel, std::int32_t here) {
    float* p = diff_src + pixel * Block;
    Float sum;
    load(p, sum);
    sum += where == here ? diff : Float{};
    store(p, sum);
  });
}

template <int Block>
void average_window_backward(const PoolGeometry& g, const float* diff_dst, const Extent& ys, const Extent& xs,
                             float* diff_src) {
  using Float = typename Lanes<Block>::Float;
  Float share;
  load(diff_dst, share);
  share /= divisor(g, ys, xs);
  for_each_pixel(g, ys, xs, [&](std::int64_t pixel, std::int32_t) {
    float* p = diff_src + pixel * Block;
    Float sum;
    load(p, sum);
    sum += share;
    store(p, sum);
  });
}

/// Calls window(plane, output pixel, rows, columns) for every window of plane `plane`, in row-major order.
template <class Window>
void for_each_window(const PoolGeometry& g, const Window& window) {
  for (std::int64_t oy = 0; oy < g.oh; ++oy) {
    const Extent ys = extent(g, oy, g.h);
    for (std::int64_t ox = 0; ox < g.ow; ++ox) window(oy * g.ow + ox, ys, extent(g, ox, g.w));
  }
}

/// A plane is one image's block of channels; threads share planes, so results do not depend on their number.
template <int Block, class Position>
void forward(const PoolGeometry& g, std::int64_t planes, const float* src, float* dst, Position* workspace) {
#pragma omp parallel for schedule(static)
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    const float* in = src + plane * g.h * g.w * Block;
    const std::int64_t first = plane * g.oh * g.ow;
    for_each_window(g, [&](std::int64_t o, const Extent& ys, const Extent& xs) {
      const std::int64_t at = (first + o) * Block;
      if (g.kind == PoolKind::average)
        average_window<Block>(g, in, ys, xs, dst + at);
      else
        max_window<Block>(g, in, ys, xs, dst + at, workspace == nullptr ? nullptr : workspace + at);
    });
  }
}

template <int Block, class Position>
void backward(const PoolGeometry& g, std::int64_t planes, const float* diff_dst, const Position* workspace,
              float* diff_src) {
#pragma omp parallel for schedule(static)
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    const std::int64_t size = g.h * g.w * Block;
    float* out = diff_src + plane * size;
    std::fill_n(out, size, 0.0F);
    const std::int64_t first = plane * g.oh * g.ow;
    for_each_window(g, [&](std::int64_t o, const Extent& ys, const Extent& xs) {
      const std::int64_t at = (first + o) * Block;
      if (g.kind == PoolKind::average)
        average_window_backward<Block>(g, diff_dst + at, ys, xs, out);
      else
        max_window_backward<Block>(g, diff_dst + at, workspace + at, ys, xs, out);
    });
  }
}

/// Calls f with the block size and the workspace's type as compile-time constants.
template <class F>
void dispatch(const PoolGeometry& g, std::int64_t block, const F& f) {
  const auto with_block = [&](auto constant) {
    if (g.workspace_type() == DataType::u8)
      f(constant, std::uint8_t{});
    else
      f(constant, std::int32_t{});
  };
  switch (block) {
    case 16: return with_block(std::integral_constant<int, 16>{});
    case 8: return with_block(std::integral_constant<int, 8>{});
    case 4: return with_block(std::integral_constant<int, 4>{});
    default: return with_block(std::integral_constant<int, 1>{});
  }
}

/// The layout of the first argument decides all; without a hint, or with one we cannot walk, it is plain.
ActivationView chosen_view(const LayoutHints& hints, const Dims& dims) {
  if (!hints.empty() && hints[0])
    if (const auto view = activation_view({dims, DataType::f32, hints[0]->layout})) return *view;
  return *activation_view({dims, DataType::f32, nullptr});
}

TensorDesc in_view(const ActivationView& view, const Dims& dims, DataType type = DataType::f32) {
  if (view.block == 1) return {dims, type, nullptr};
  return blocked_activations(dims, static_cast<int>(view.block), type);
}

template <class T>
T* at(std::span<std::byte* const> pointers, std::size_t i) {
  return reinterpret_cast<T*>(pointers[i]);
}

}  // namespace

Prepared prepare(const PoolForward& op, const LayoutHints& hints) {
  const PoolGeometry g = op.g;
  const ActivationView view = chosen_view(hints, g.src());
  const std::int64_t planes = view.n * (view.padded_c / view.block), block = view.block;
  const bool keep = op.keep_workspace;
  std::vector<TensorDesc> args = {in_view(view, g.src()), in_view(view, g.dst())};
  if (keep) args.push_back(in_view(view, g.dst(), g.workspace_type()));
  return std::make_shared<KernelOp>(std::move(args), [=](std::span<std::byte* const> p) {
    dispatch(g, block, [&](auto constant, auto position) {
      using Position = decltype(position);
      forward<constant()>(g, planes, at<const float>(p, 0), at<float>(p, 1),
                          keep ? at<Position>(p, 2) : nullptr);
    });
  });
}

Prepared prepare(const PoolBackward& op, const LayoutHints& hints) {
  const PoolGeometry g = op.g;
  const ActivationView view = chosen_view(hints, g.dst());
  const std::int64_t planes = view.n * (view.padded_c / view.block), block = view.block;
  const bool max = g.kind == PoolKind::max;
  std::vector<TensorDesc> args = {in_view(view, g.dst())};
  if (max) args.push_back(in_view(view, g.dst(), g.workspace_type()));
  args.push_back(in_view(view, g.src()));
  return std::make_shared<KernelOp>(std::move(args), [=](std::span<std::byte* const> p) {
    dispatch(g, block, [&](auto constant, auto position) {
      using Position = decltype(position);
      backward<constant()>(g, planes, at<const float>(p, 0), max ? at<const Position>(p, 1) : nullptr,
                           at<float>(p, max ? 2 : 1));
    });
  });
}

}  // namespace convnet::cpu
