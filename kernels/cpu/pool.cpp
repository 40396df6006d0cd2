// Pooling over plain and blocked activations. One own kernel for all cases, with none of oneDNN's limits:
// windows that start inside the image, sums, windows outside the image, NaN. On blocked layouts it takes 1
// to 1.4 times oneDNN's time forward and 1.3 to 1.8 backward, about that of copying the image; plain ones are
// several times slower.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cpu/interleave.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

/// The pixels [begin, end) of one side that window `i` covers, and the window's origin.
struct Extent {
  std::int64_t origin, begin, end;
};
Extent extent(const WindowLine& line, std::int64_t i) {
  const std::int64_t origin = line.origin(i);
  return {origin, std::clamp<std::int64_t>(origin, 0, line.pixels),
          std::clamp<std::int64_t>(origin + line.size, 0, line.pixels)};
}

std::int64_t pixels(const Extent& y, const Extent& x) { return (y.end - y.begin) * (x.end - x.begin); }

/// Vectors of `Block` channels, which compilers keep in registers, unlike arrays.
template <int Block>
using Float = typename Vector<float, Block>::Type;
template <int Block>
using Int = typename Vector<std::int32_t, Block>::Type;

template <int Block, class Position>
void store_positions(const Int<Block>& where, Position* p) {
  store(p, __builtin_convertvector(where, typename Vector<Position, Block>::Type));
}
template <int Block, class Position>
void load_positions(const Position* p, Int<Block>& where) {
  typename Vector<Position, Block>::Type narrow;
  load(p, narrow);
  where = __builtin_convertvector(narrow, Int<Block>);
}

template <int Value>
using Constant = std::integral_constant<int, Value>;

/// Calls visit(pixel, position in the window) for the pixels of a window, in row-major order. If Size > 0,
/// the window must have that size and lie inside the image; the code then has no loops.
template <int Size, class Visit>
void for_each_pixel(const PoolGeometry& g, const Extent& ys, const Extent& xs, const Visit& visit) {
  if constexpr (Size > 0) {
    const std::int64_t first = ys.origin * g.w + xs.origin;
    [&]<int... I>(std::integer_sequence<int, I...>) { (visit(first + I / Size * g.w + I % Size, I), ...); }
    (std::make_integer_sequence<int, Size * Size>{});
  } else {
    for (std::int64_t y = ys.begin; y < ys.end; ++y)
      for (std::int64_t x = xs.begin; x < xs.end; ++x)
        visit(y * g.w + x, static_cast<std::int32_t>((y - ys.origin) * g.size.x + x - xs.origin));
  }
}

/// Returns the numbers by which maxima are compared.
template <PoolKind Kind, int Block>
Float<Block> rank(const Float<Block>& v) {
  if constexpr (Kind == PoolKind::max_abs)
    return (Float<Block>)((Int<Block>)v & std::numeric_limits<std::int32_t>::max());  // without the sign
  else
    return v;
}

/// Computes the maximum of one window for `Block` channels. The first of equal values wins; a NaN beats every
/// number, so that it is not lost. A window without pixels gives 0. If Position is void, positions are not
/// kept.
template <PoolKind Kind, int Size, int Block, class Position, class T>
void max_window(const PoolForward& op, const T* src, const Extent& ys, const Extent& xs, T* dst,
                Position* position) {
  const PoolGeometry& g = op.g;
  Float<Block> best{};
  Int<Block> where{};
  if (pixels(ys, xs) > 0) {
    load_floats<Block>(src + (ys.begin * g.w + xs.begin) * Block, Block, best);
    where += static_cast<std::int32_t>((ys.begin - ys.origin) * g.size.x + xs.begin - xs.origin);
  }
  for_each_pixel<Size>(g, ys, xs, [&](std::int64_t pixel, std::int32_t here) {
    Float<Block> v;
    load_floats<Block>(src + pixel * Block, Block, v);
    const Float<Block> new_rank = rank<Kind, Block>(v), best_rank = rank<Kind, Block>(best);
    // NOLINTNEXTLINE(misc-redundant-expression): what differs from itself is NaN
    const auto better = (new_rank > best_rank) | ((v != v) & (best == best));
    best = better ? v : best;
    if constexpr (!std::is_void_v<Position>) where = better ? Int<Block>{} + here : where;
  });
  if (op.relu) {
    where = best > Float<Block>{} ? where : Int<Block>{} + PoolGeometry::kNowhere;
    best = best < Float<Block>{} ? Float<Block>{} : best;
  }
  store_floats<Block>(dst, Block, best);
  if constexpr (!std::is_void_v<Position>) store_positions<Block>(where, position);
}

/// Returns the number by which the sum of a window is divided.
float divisor(const PoolGeometry& g, const Extent& ys, const Extent& xs) {
  return g.sum ? 1.0F : static_cast<float>(std::max<std::int64_t>(pixels(ys, xs), 1));
}

template <int Size, int Block, class T>
void average_window(const PoolGeometry& g, const T* src, const Extent& ys, const Extent& xs, T* dst) {
  Float<Block> sum{};
  for_each_pixel<Size>(g, ys, xs, [&](std::int64_t pixel, std::int32_t) {
    Float<Block> v;
    load_floats<Block>(src + pixel * Block, Block, v);
    sum += v;
  });
  store_floats<Block>(dst, Block, Float<Block>(sum / divisor(g, ys, xs)));
}

template <int Size, int Block, class Position, class T>
void max_window_backward(const PoolGeometry& g, const T* diff_dst, const Position* position, const Extent& ys,
                         const Extent& xs, float* diff_src) {
  Float<Block> diff;
  load_floats<Block>(diff_dst, Block, diff);
  Int<Block> where;
  load_positions<Block>(position, where);
  for_each_pixel<Size>(g, ys, xs, [&](std::int64_t pixel, std::int32_t here) {
    float* p = diff_src + pixel * Block;
    Float<Block> sum;
    load(p, sum);
    sum += where == here ? diff : Float<Block>{};
    store(p, sum);
  });
}

template <int Size, int Block, class T>
void average_window_backward(const PoolGeometry& g, const T* diff_dst, const Extent& ys, const Extent& xs,
                             float* diff_src) {
  Float<Block> share;
  load_floats<Block>(diff_dst, Block, share);
  share /= divisor(g, ys, xs);
  for_each_pixel<Size>(g, ys, xs, [&](std::int64_t pixel, std::int32_t) {
    float* p = diff_src + pixel * Block;
    Float<Block> sum;
    load(p, sum);
    sum += share;
    store(p, sum);
  });
}

/// Calls window(size, output pixel, rows, columns) for every window of a plane, in row-major order. `size` is
/// Constant<Size> for windows that lie inside the image, else Constant<0>. Windows are square unless Size is
/// 0.
template <int Size, class Window>
void for_each_window(const PoolGeometry& g, const Window& window) {
  const WindowLine rows = g.rows(), columns = g.columns();
  const auto inside = [](const Extent& e) { return e.end - e.begin == Size; };
  for (std::int64_t oy = 0; oy < g.oh; ++oy) {
    const Extent ys = extent(rows, oy);
    for (std::int64_t ox = 0; ox < g.ow; ++ox) {
      const Extent xs = extent(columns, ox);
      if (Size > 0 && inside(ys) && inside(xs))
        window(Constant<Size>{}, oy * g.ow + ox, ys, xs);
      else
        window(Constant<0>{}, oy * g.ow + ox, ys, xs);
    }
  }
}

/// Pools a plane, which is one block of channels of an image in the blocked layout.
template <PoolKind Kind, int Size, int Block, class Position, class T>
void forward_plane(const PoolForward& op, const T* src, T* dst, Position* positions) {
  const PoolGeometry& g = op.g;
  for_each_window<Size>(g, [&](auto size, std::int64_t o, const Extent& ys, const Extent& xs) {
    if constexpr (Kind == PoolKind::average)
      average_window<size(), Block>(g, src, ys, xs, dst + o * Block);
    else if constexpr (std::is_void_v<Position>)
      max_window<Kind, size(), Block, void>(op, src, ys, xs, dst + o * Block, nullptr);
    else
      max_window<Kind, size(), Block>(op, src, ys, xs, dst + o * Block, positions + o * Block);
  });
}

template <class T>
struct alignas(kRows * sizeof(T)) Pixel {
  T lanes[kRows];
};
/// A plane of up to kRows channels for a thread's own use.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t spatial) : pixels_(static_cast<std::size_t>(spatial)) {}
  T* data() { return pixels_.empty() ? nullptr : pixels_.front().lanes; }

 private:
  std::vector<Pixel<T>> pixels_;
};
/// Memory in f32 for the sums of a gradient that is stored as bf16, so that each sum is rounded only once.
/// Gradients in f32 need none.
template <class T>
Scratch<float> sums_for(const PoolGeometry& g) {
  return Scratch<float>(std::is_same_v<T, float> ? 0 : g.h * g.w);
}

template <PoolKind Kind, int Size, int Block, class Position, class T>
void backward_plane(const PoolGeometry& g, const T* diff_dst, const Position* positions, T* diff_src,
                    Scratch<float>& scratch) {
  const std::int64_t count = g.h * g.w * Block;
  float* sums = nullptr;
  if constexpr (std::is_same_v<T, float>)
    sums = diff_src;
  else
    sums = scratch.data();
  std::fill_n(sums, count, 0.0F);
  for_each_window<Size>(g, [&](auto size, std::int64_t o, const Extent& ys, const Extent& xs) {
    if constexpr (Kind == PoolKind::average)
      average_window_backward<size(), Block>(g, diff_dst + o * Block, ys, xs, sums);
    else
      max_window_backward<size(), Block>(g, diff_dst + o * Block, positions + o * Block, ys, xs, sums);
  });
  if constexpr (!std::is_same_v<T, float>) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) diff_src[i] = stored_as<T>(sums[i]);
  }
}

// Plain activations: 16 planes at a time are interleaved, in scratch memory, into one blocked plane.

/// Calls body(first plane, count) for groups of planes, in parallel. Threads share groups, so results do not
/// depend on their number.
template <class MakeScratch, class Body>
void for_groups(std::int64_t planes, const MakeScratch& make_scratch, const Body& body) {
#pragma omp parallel
  {
    auto scratch = make_scratch();
#pragma omp for schedule(static)
    for (std::int64_t first = 0; first < planes; first += kRows)
      body(first, std::min<std::int64_t>(kRows, planes - first), scratch);
  }
}

template <PoolKind Kind, int Size, class Position, class T>
void forward_plain(const PoolForward& op, std::int64_t planes, const T* src, T* dst, Position* positions) {
  const PoolGeometry& g = op.g;
  using Stored = std::conditional_t<std::is_void_v<Position>, std::uint8_t, Position>;
  const std::int64_t in = g.h * g.w, out = g.oh * g.ow;
  const auto make_scratch = [&] {
    return std::tuple(Scratch<T>(in), Scratch<T>(out), Scratch<Stored>(std::is_void_v<Position> ? 0 : out));
  };
  for_groups(planes, make_scratch, [=, &op](std::int64_t first, std::int64_t count, auto& scratch) {
    auto& [blocked_src, blocked_dst, blocked_positions] = scratch;
    interleave(bits_of(src) + first * in, in, count, in, bits_of(blocked_src.data()));
    if constexpr (std::is_void_v<Position>) {
      forward_plane<Kind, Size, kRows, void>(op, blocked_src.data(), blocked_dst.data(), nullptr);
    } else {
      forward_plane<Kind, Size, kRows>(op, blocked_src.data(), blocked_dst.data(), blocked_positions.data());
      separate(blocked_positions.data(), count, out, positions + first * out);
    }
    separate(bits_of(blocked_dst.data()), count, out, bits_of(dst) + first * out);
  });
}

template <PoolKind Kind, int Size, class Position, class T>
void backward_plain(const PoolGeometry& g, std::int64_t planes, const T* diff_dst, const Position* positions,
                    T* diff_src) {
  const std::int64_t in = g.h * g.w, out = g.oh * g.ow;
  const auto make_scratch = [&] {
    return std::tuple(Scratch<T>(out), Scratch<Position>(Kind == PoolKind::average ? 0 : out), Scratch<T>(in),
                      sums_for<T>(g));
  };
  for_groups(planes, make_scratch, [=](std::int64_t first, std::int64_t count, auto& scratch) {
    auto& [blocked_dst, blocked_positions, blocked_src, sums] = scratch;
    interleave(bits_of(diff_dst) + first * out, out, count, out, bits_of(blocked_dst.data()));
    if constexpr (Kind != PoolKind::average)
      interleave(positions + first * out, out, count, out, blocked_positions.data());
    backward_plane<Kind, Size, kRows, Position, T>(g, blocked_dst.data(), blocked_positions.data(),
                                                   blocked_src.data(), sums);
    separate(bits_of(blocked_src.data()), count, in, bits_of(diff_src) + first * in);
  });
}

template <PoolKind Kind, int Size, int Block, class Position, class T>
void forward(const PoolForward& op, std::int64_t planes, const T* src, T* dst, Position* positions) {
  if constexpr (Block == 1) {
    forward_plain<Kind, Size>(op, planes, src, dst, positions);
  } else {
    const PoolGeometry& g = op.g;
    const std::int64_t in = g.h * g.w * Block, out = g.oh * g.ow * Block;
#pragma omp parallel for schedule(static)
    for (std::int64_t plane = 0; plane < planes; ++plane) {
      if constexpr (std::is_void_v<Position>)
        forward_plane<Kind, Size, Block, void>(op, src + plane * in, dst + plane * out, nullptr);
      else
        forward_plane<Kind, Size, Block>(op, src + plane * in, dst + plane * out, positions + plane * out);
    }
  }
}

template <PoolKind Kind, int Size, int Block, class Position, class T>
void backward(const PoolGeometry& g, std::int64_t planes, const T* diff_dst, const Position* positions,
              T* diff_src) {
  if constexpr (Block == 1) {
    backward_plain<Kind, Size>(g, planes, diff_dst, positions, diff_src);
  } else {
    const std::int64_t in = g.h * g.w * Block, out = g.oh * g.ow * Block;
#pragma omp parallel
    {
      Scratch<float> sums = sums_for<T>(g);
#pragma omp for schedule(static)
      for (std::int64_t plane = 0; plane < planes; ++plane)
        backward_plane<Kind, Size, Block, Position, T>(
            g, diff_dst + plane * out, Kind == PoolKind::average ? nullptr : positions + plane * out,
            diff_src + plane * in, sums);
    }
  }
}

/// Calls f(block, size, position) with constants for the kernels: the block of the layout, and the size of
/// square windows if it is 2 or 3, else 0. `position` is a value of the workspace's type.
template <class F>
void dispatch(const PoolGeometry& g, std::int64_t block, const F& f) {
  const auto with_block = [&](auto constant) {
    if (g.workspace_type() != DataType::u8) return f(constant, Constant<0>{}, std::int32_t{});
    switch (g.size.equal() ? g.size.x : 0) {
      case 2: return f(constant, Constant<2>{}, std::uint8_t{});
      case 3: return f(constant, Constant<3>{}, std::uint8_t{});
      default: return f(constant, Constant<0>{}, std::uint8_t{});
    }
  };
  switch (block) {
    case 16: return with_block(Constant<16>{});
    case 8: return with_block(Constant<8>{});
    case 4: return with_block(Constant<4>{});
    default: return with_block(Constant<1>{});
  }
}

}  // namespace

Prepared prepare(const PoolForward& op, const LayoutHints& hints) {
  const PoolGeometry g = op.g;
  const TensorDesc src = walkable(g.src(), hints);
  const ActivationView view = *activation_view(src);
  const std::int64_t planes = view.n * (view.padded_c / view.block), block = view.block;
  const bool keep = op.keep_workspace;
  std::vector<TensorDesc> args = {src, in_view(view, g.dst(), src.type)};
  if (keep) args.push_back(in_view(view, g.dst(), g.workspace_type()));
  return std::make_shared<KernelOp>(std::move(args), [=, type = src.type](std::span<std::byte* const> p) {
    dispatch(g, block, [&](auto lanes, auto size, auto position) {
      using Position = decltype(position);
      with_stored(type, [&]<class T>(T) {
        const T* from = as<T>(p[0]);
        T* to = as<T>(p[1]);
        const auto run = [&]<PoolKind Kind>() {
          if (keep)
            forward<Kind, size(), lanes()>(op, planes, from, to, as<Position>(p[2]));
          else
            forward<Kind, size(), lanes(), void>(op, planes, from, to, nullptr);
        };
        switch (g.kind) {
          case PoolKind::max: return run.template operator()<PoolKind::max>();
          case PoolKind::max_abs: return run.template operator()<PoolKind::max_abs>();
          case PoolKind::average:
            return forward<PoolKind::average, size(), lanes(), void>(op, planes, from, to, nullptr);
        }
      });
    });
  });
}

Prepared prepare(const PoolBackward& op, const LayoutHints& hints) {
  const PoolGeometry g = op.g;
  const bool positions = g.keeps_workspace();
  const DataType type = hinted_type(hints, 0);
  // Positions keep the layout that forward gave them, which the pooled tensor also has. Without positions,
  // the layout is the one that the plan wants for the result, which is larger than the gradient.
  TensorDesc lies = walkable(g.dst(), hints, positions && hints.size() > 1 && hints[1] ? 1 : 0);
  if (!positions && hints.size() > 1 && hints[1]) {
    const ActivationView result = *activation_view(walkable(g.src(), hints, 1));
    lies = in_view(result, g.dst());
  }
  const ActivationView view = *activation_view(lies);
  const std::int64_t planes = view.n * (view.padded_c / view.block), block = view.block;
  std::vector<TensorDesc> args = {in_view(view, g.dst(), type)};
  if (positions) args.push_back(in_view(view, g.dst(), g.workspace_type()));
  args.push_back(in_view(view, g.src(), type));
  return std::make_shared<KernelOp>(std::move(args), [=](std::span<std::byte* const> p) {
    dispatch(g, block, [&](auto lanes, auto size, auto position) {
      using Position = decltype(position);
      with_stored(type, [&]<class T>(T) {
        const T* diff_dst = as<T>(p[0]);
        T* diff_src = as<T>(p[positions ? 2 : 1]);
        // max_abs needs no kernel of its own: only the position of a maximum counts.
        if (positions)
          backward<PoolKind::max, size(), lanes(), Position>(g, planes, diff_dst, as<Position>(p[1]),
                                                             diff_src);
        else
          backward<PoolKind::average, size(), lanes(), Position>(g, planes, diff_dst, nullptr, diff_src);
      });
    });
  });
}

}  // namespace convnet::cpu::own
