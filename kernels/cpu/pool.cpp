// Pooling over plain and blocked activations. One own kernel for all cases, with none of oneDNN's limits:
// windows that start inside the image, sums, windows outside the image, NaN. On blocked layouts it takes 1
// to 1.4 times oneDNN's time forward and 1.3 to 1.8 backward, about that of copying the image; plain ones are
// several times slower.
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

/// The pixels [begin, end) of one side that window `i` covers, and the window's origin.
struct Extent {
  std::int64_t origin, begin, end;

  bool covers(std::int64_t pixels) const { return begin == 0 && end == pixels; }
};
Extent extent(const WindowLine& line, std::int64_t i) {
  const std::int64_t origin = line.origin(i);
  return {origin, std::clamp<std::int64_t>(origin, 0, line.pixels),
          std::clamp<std::int64_t>(origin + line.size, 0, line.pixels)};
}

/// A window over a plane whose lines have `line` pixels. `columns` are those of the window, even if it is
/// partly outside.
struct Window {
  Extent y, x;
  std::int64_t line, columns;

  std::int64_t pixels() const { return (y.end - y.begin) * (x.end - x.begin); }
};

/// Vectors of `Block` channels, which compilers keep in registers, unlike arrays.
template <int Block>
using Float = typename Vector<float, Block>::Type;
template <int Block>
using Int = typename Vector<std::int32_t, Block>::Type;

template <int Block, class Position>
void store_positions(const Int<Block>& where, Position* p) {
#if defined(__SSE2__) && !defined(__AVX512BW__)
  // Compilers convert one lane after the other here.
  if constexpr (sizeof(Position) == 1) {
    std::array<Vector<std::int32_t, 4>::Type, Block / 4> four;
    const Int<Block> bytes = where & 0xff;
    std::memcpy(four.data(), &bytes, sizeof bytes);
    for (std::size_t i = 0; i < four.size(); i += 2) {
      const __m128i words =
          _mm_packs_epi32((__m128i)four[i], (__m128i)four[std::min(i + 1, four.size() - 1)]);
      const __m128i packed = _mm_packus_epi16(words, words);
      std::memcpy(p + 4 * i, &packed, std::min<std::size_t>(8, Block - 4 * i));
    }
    return;
  }
#endif
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
[[gnu::always_inline]] inline void for_each_pixel(const Window& w, const Visit& visit) {
  if constexpr (Size > 0) {
    const std::int64_t first = w.y.origin * w.line + w.x.origin;
    [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
      (visit(first + I / Size * w.line + I % Size, I), ...);
    }
    (std::make_integer_sequence<int, Size * Size>{});
  } else {
    for (std::int64_t y = w.y.begin; y < w.y.end; ++y)
      for (std::int64_t x = w.x.begin; x < w.x.end; ++x)
        visit(y * w.line + x, static_cast<std::int32_t>((y - w.y.origin) * w.columns + x - w.x.origin));
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
void max_window(bool relu, const Window& window, const T* src, T* dst, Position* position) {
  Float<Block> best{};
  Int<Block> where{};
  if (Size > 0 || window.pixels() > 0) {
    load_floats<Block>(src + (window.y.begin * window.line + window.x.begin) * Block, Block, best);
    where += static_cast<std::int32_t>((window.y.begin - window.y.origin) * window.columns + window.x.begin -
                                       window.x.origin);
  }
  for_each_pixel<Size>(window, [&](std::int64_t pixel, std::int32_t here) {
    Float<Block> v;
    load_floats<Block>(src + pixel * Block, Block, v);
    const Float<Block> new_rank = rank<Kind, Block>(v), best_rank = rank<Kind, Block>(best);
    // NOLINTNEXTLINE(misc-redundant-expression): what differs from itself is NaN
    const auto better = ~(new_rank <= best_rank) & (best == best);
    best = better ? v : best;
    if constexpr (!std::is_void_v<Position>) where = better ? Int<Block>{} + here : where;
  });
  if (relu) {
    where = best > Float<Block>{} ? where : Int<Block>{} + PoolGeometry::kNowhere;
    best = best < Float<Block>{} ? Float<Block>{} : best;
  }
  store_floats<Block>(dst, Block, best);
  if constexpr (!std::is_void_v<Position>) store_positions<Block>(where, position);
}

/// Returns the number by which the sum of a window is divided.
float divisor(bool sum, const Window& window) {
  return sum ? 1.0F : static_cast<float>(std::max<std::int64_t>(window.pixels(), 1));
}

template <int Size, int Block, class T>
void average_window(bool only_sum, const Window& window, const T* src, T* dst) {
  Float<Block> sum{};
  for_each_pixel<Size>(window, [&](std::int64_t pixel, std::int32_t) {
    Float<Block> v;
    load_floats<Block>(src + pixel * Block, Block, v);
    sum += v;
  });
  store_floats<Block>(dst, Block, Float<Block>(sum / divisor(only_sum, window)));
}

template <int Size, int Block, class Position, class T>
void max_window_backward(const Window& window, const T* diff_dst, const Position* position, float* diff_src) {
  Float<Block> diff;
  load_floats<Block>(diff_dst, Block, diff);
  Int<Block> where;
  load_positions<Block>(position, where);
  for_each_pixel<Size>(window, [&](std::int64_t pixel, std::int32_t here) {
    float* p = diff_src + pixel * Block;
    Float<Block> sum;
    load(p, sum);
    sum += where == here ? diff : Float<Block>{};
    store(p, sum);
  });
}

template <int Size, int Block, class T>
void average_window_backward(bool only_sum, const Window& window, const T* diff_dst, float* diff_src) {
  Float<Block> share;
  load_floats<Block>(diff_dst, Block, share);
  share /= divisor(only_sum, window);
  for_each_pixel<Size>(window, [&](std::int64_t pixel, std::int32_t) {
    float* p = diff_src + pixel * Block;
    Float<Block> sum;
    load(p, sum);
    sum += share;
    store(p, sum);
  });
}

/// Calls visit(size, output pixel, window) for every window of a plane, in row-major order. `size` is
/// Constant<Size> for windows that lie inside the image, else Constant<0>. Windows are square unless Size is
/// 0.
template <int Size, class Visit>
void for_each_window(const PoolGeometry& g, const Visit& visit) {
  const WindowLine rows = g.rows(), columns = g.columns();
  const std::int64_t outputs = g.ow, line = g.w;
  const auto inside = [](const Extent& e) { return Size > 0 && e.end - e.begin == Size; };
  // In columns [begin, end) windows lie inside.
  std::int64_t begin = 0;
  while (begin < outputs && !inside(extent(columns, begin))) ++begin;
  std::int64_t end = outputs;
  while (end > begin && !inside(extent(columns, end - 1))) --end;
  for (std::int64_t oy = 0, o = 0; oy < g.oh; ++oy) {
    const Extent ys = extent(rows, oy);
    const auto visit_partly = [&](std::int64_t to) {
      for (; o < to; ++o)
        visit(Constant<0>{}, o, Window{ys, extent(columns, o - oy * outputs), line, columns.size});
    };
    if (inside(ys)) {
      visit_partly(oy * outputs + begin);
      std::int64_t origin = columns.origin(begin);
      for (const std::int64_t to = oy * outputs + end; o < to; ++o, origin += columns.stride)
        visit(Constant<Size>{}, o,
              Window{{ys.origin, ys.origin, ys.origin + Size}, {origin, origin, origin + Size}, line, Size});
    }
    visit_partly((oy + 1) * outputs);
  }
}

// A plane is one block of channels of an image in the blocked layout. Functions for planes are chosen by
// kind, size and type before the loops over planes, which so exist only once for each type of activations.

/// Pools a plane. `positions` is used only if positions of maxima are kept.
template <class T>
using ForwardPlane = void (*)(const PoolForward& op, const T* src, T* dst, void* positions);
/// Computes the gradient of a plane. `positions` is used only for maxima. `sums` has room for one plane in
/// f32; it is not used if T is float.
template <class T>
using BackwardPlane = void (*)(const PoolGeometry& g, const T* diff_dst, const void* positions, T* diff_src,
                               float* sums);

template <PoolKind Kind, int Size, int Block, class Position, class T>
void forward_plane(const PoolForward& op, const T* src, T* dst, [[maybe_unused]] void* positions) {
  // Stores of positions, which are bytes, may not be thought to change these.
  const bool relu = op.relu, only_sum = op.g.sum;
  for_each_window<Size>(op.g, [=](auto size, std::int64_t o, const Window& window) {
    if constexpr (Kind == PoolKind::average)
      average_window<size(), Block>(only_sum, window, src, dst + o * Block);
    else if constexpr (std::is_void_v<Position>)
      max_window<Kind, size(), Block, void>(relu, window, src, dst + o * Block, nullptr);
    else
      max_window<Kind, size(), Block>(relu, window, src, dst + o * Block,
                                      static_cast<Position*>(positions) + o * Block);
  });
}

/// Returns whether there is one window, which has all pixels.
bool covers_plane(const PoolGeometry& g) {
  return g.oh == 1 && g.ow == 1 && extent(g.rows(), 0).covers(g.h) && extent(g.columns(), 0).covers(g.w);
}
/// Computes the gradient of a plane with such a window.
template <int Block, class T>
void spread_average(const PoolGeometry& g, const T* diff_dst, T* diff_src) {
  Float<Block> share;
  load_floats<Block>(diff_dst, Block, share);
  if (!g.sum) share /= static_cast<float>(g.h * g.w);
  for (std::int64_t i = 0; i < g.h * g.w; ++i) store_floats<Block>(diff_src + i * Block, Block, share);
}

/// Gradients that are stored as bf16 are summed in f32, so that each sum is rounded only once.
template <PoolKind Kind, int Size, int Block, class Position, class T>
void backward_plane(const PoolGeometry& g, const T* diff_dst, [[maybe_unused]] const void* positions,
                    T* diff_src, float* sums) {
  const std::int64_t count = g.h * g.w * Block;
  if constexpr (Kind == PoolKind::average && Size == 0) {
    if (covers_plane(g)) return spread_average<Block>(g, diff_dst, diff_src);
  }
  if constexpr (std::is_same_v<T, float>) sums = diff_src;
  std::fill_n(sums, count, 0.0F);
  for_each_window<Size>(g, [=, only_sum = g.sum](auto size, std::int64_t o, const Window& window) {
    if constexpr (Kind == PoolKind::average)
      average_window_backward<size(), Block>(only_sum, window, diff_dst + o * Block, sums);
    else
      max_window_backward<size(), Block>(window, diff_dst + o * Block,
                                         static_cast<const Position*>(positions) + o * Block, sums);
  });
  if constexpr (!std::is_same_v<T, float>) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) diff_src[i] = stored_as<T>(sums[i]);
  }
}

/// Calls f(size), with the size of windows as a constant if there is code for it, else with 0. There is none
/// for blocks that layouts seldom have.
template <int Block, class F>
auto with_size(const PoolGeometry& g, const F& f) {
  if constexpr (Block == kUsualBlock) {
    if (g.size.equal() && g.size.x == 2) return f(Constant<2>{});
    if (g.size.equal() && g.size.x == 3) return f(Constant<3>{});
  }
  return f(Constant<0>{});
}

/// Calls f(block) with the block of a blocked layout as a constant. Plain activations are pooled in blocks of
/// kRows.
template <class F>
auto with_block(std::int64_t block, const F& f) {
  switch (block) {
    case 8: return f(Constant<8>{});
    case 4: return f(Constant<4>{});
    default: return f(Constant<kRows>{});
  }
}

template <class T>
ForwardPlane<T> forward_plane_for(const PoolForward& op, std::int64_t block) {
  using enum PoolKind;
  return with_block(block, [&]<int Block>(std::integral_constant<int, Block>) -> ForwardPlane<T> {
    const bool wide = op.g.workspace_type() != DataType::u8;
    if (op.g.kind == max_abs) {
      if (!op.keep_workspace) return forward_plane<max_abs, 0, Block, void, T>;
      return wide ? forward_plane<max_abs, 0, Block, std::int32_t, T>
                  : forward_plane<max_abs, 0, Block, std::uint8_t, T>;
    }
    if (op.g.kind == max && op.keep_workspace && wide) return forward_plane<max, 0, Block, std::int32_t, T>;
    return with_size<Block>(op.g, [&](auto size) -> ForwardPlane<T> {
      if (op.g.kind == average) return forward_plane<average, size(), Block, void, T>;
      return op.keep_workspace ? forward_plane<max, size(), Block, std::uint8_t, T>
                               : forward_plane<max, size(), Block, void, T>;
    });
  });
}

template <class T>
BackwardPlane<T> backward_plane_for(const PoolGeometry& g, std::int64_t block) {
  using enum PoolKind;
  return with_block(block, [&]<int Block>(std::integral_constant<int, Block>) -> BackwardPlane<T> {
    // max_abs needs no code of its own: only the position of a maximum counts.
    if (g.keeps_workspace() && g.workspace_type() != DataType::u8)
      return backward_plane<max, 0, Block, std::int32_t, T>;
    return with_size<Block>(g, [&](auto size) -> BackwardPlane<T> {
      return g.keeps_workspace() ? backward_plane<max, size(), Block, std::uint8_t, T>
                                 : backward_plane<average, size(), Block, void, T>;
    });
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
/// Memory for the sums of a gradient of bf16.
template <class T>
Scratch<float> sums_for(const PoolGeometry& g) {
  return Scratch<float>(std::is_same_v<T, float> ? 0 : g.h * g.w);
}

// Plain activations: 16 planes at a time are interleaved, in scratch memory, into one blocked plane. Threads
// share such groups of planes, so results do not depend on their number.

/// Pools plain activations. Position is the type of the workspace, or void if no positions are kept.
template <class Position, class T>
void forward_plain(const PoolForward& op, ForwardPlane<T> pool, std::int64_t planes, const T* src, T* dst,
                   [[maybe_unused]] void* positions) {
  const std::int64_t in = op.g.h * op.g.w, out = op.g.oh * op.g.ow;
  constexpr bool kKeep = !std::is_void_v<Position>;
#pragma omp parallel
  {
    Scratch<T> blocked_src(in), blocked_dst(out);
    Scratch<std::conditional_t<kKeep, Position, std::uint8_t>> blocked_positions(kKeep ? out : 0);
#pragma omp for schedule(static)
    for (std::int64_t first = 0; first < planes; first += kRows) {
      const std::int64_t count = std::min<std::int64_t>(kRows, planes - first);
      interleave(bits_of(src) + first * in, in, count, in, bits_of(blocked_src.data()));
      pool(op, blocked_src.data(), blocked_dst.data(), blocked_positions.data());
      if constexpr (kKeep)
        separate(blocked_positions.data(), count, out, static_cast<Position*>(positions) + first * out);
      separate(bits_of(blocked_dst.data()), count, out, bits_of(dst) + first * out);
    }
  }
}

/// Computes gradients of plain activations. Position is the type of the workspace, or void for averages.
template <class Position, class T>
void backward_plain(const PoolGeometry& g, BackwardPlane<T> spread, std::int64_t planes, const T* diff_dst,
                    [[maybe_unused]] const void* positions, T* diff_src) {
  const std::int64_t in = g.h * g.w, out = g.oh * g.ow;
  constexpr bool kKept = !std::is_void_v<Position>;
#pragma omp parallel
  {
    Scratch<T> blocked_dst(out), blocked_src(in);
    Scratch<std::conditional_t<kKept, Position, std::uint8_t>> blocked_positions(kKept ? out : 0);
    Scratch<float> sums = sums_for<T>(g);
#pragma omp for schedule(static)
    for (std::int64_t first = 0; first < planes; first += kRows) {
      const std::int64_t count = std::min<std::int64_t>(kRows, planes - first);
      interleave(bits_of(diff_dst) + first * out, out, count, out, bits_of(blocked_dst.data()));
      if constexpr (kKept)
        interleave(static_cast<const Position*>(positions) + first * out, out, count, out,
                   blocked_positions.data());
      spread(g, blocked_dst.data(), blocked_positions.data(), blocked_src.data(), sums.data());
      separate(bits_of(blocked_src.data()), count, in, bits_of(diff_src) + first * in);
    }
  }
}

/// Calls f(position) with a null pointer of the type of positions in the workspace, or of void if there are
/// none.
template <class F>
void with_position(const PoolGeometry& g, bool kept, const F& f) {
  if (!kept)
    f(static_cast<void*>(nullptr));
  else if (g.workspace_type() == DataType::u8)
    f(static_cast<std::uint8_t*>(nullptr));
  else
    f(static_cast<std::int32_t*>(nullptr));
}

template <class T>
void forward(const PoolForward& op, std::int64_t planes, std::int64_t block, const T* src, T* dst,
             std::byte* positions) {
  const PoolGeometry& g = op.g;
  const ForwardPlane<T> pool = forward_plane_for<T>(op, block);
  if (block == 1)
    return with_position(g, positions != nullptr, [&]<class Position>(Position*) {
      forward_plain<Position>(op, pool, planes, src, dst, positions);
    });
  const std::int64_t in = g.h * g.w * block, out = g.oh * g.ow * block,
                     bytes = out * size_of(g.workspace_type());
#pragma omp parallel for schedule(static)
  for (std::int64_t plane = 0; plane < planes; ++plane)
    pool(op, src + plane * in, dst + plane * out, positions == nullptr ? nullptr : positions + plane * bytes);
}

template <class T>
void backward(const PoolGeometry& g, std::int64_t planes, std::int64_t block, const T* diff_dst,
              const std::byte* positions, T* diff_src) {
  const BackwardPlane<T> spread = backward_plane_for<T>(g, block);
  if (block == 1)
    return with_position(g, positions != nullptr, [&]<class Position>(Position*) {
      backward_plain<Position>(g, spread, planes, diff_dst, positions, diff_src);
    });
  const std::int64_t in = g.h * g.w * block, out = g.oh * g.ow * block,
                     bytes = out * size_of(g.workspace_type());
#pragma omp parallel
  {
    Scratch<float> sums = sums_for<T>(g);
#pragma omp for schedule(static)
    for (std::int64_t plane = 0; plane < planes; ++plane)
      spread(g, diff_dst + plane * out, positions == nullptr ? nullptr : positions + plane * bytes,
             diff_src + plane * in, sums.data());
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
    with_stored(type, [&]<class T>(T) {
      forward(op, planes, block, as<T>(p[0]), as<T>(p[1]), keep ? p[2] : nullptr);
    });
  });
}

Prepared prepare(const PoolBackward& op, const LayoutHints& hints) {
  const PoolGeometry g = op.g;
  const bool positions = g.keeps_workspace();
  const DataType type = hinted_type(hints, 0);
  // Positions keep the layout that forward gave them, which the pooled tensor also has. Without positions,
  // the layout is the one that the plan wants for the result, which is larger than the gradient. (The
  // gradient's own says less: blocks of single pixels lie like plain ones.)
  const bool by_result = !positions && hints.size() > 1 && hints[1];
  const ActivationView view =
      by_result
          ? *activation_view(walkable(g.src(), hints, 1))
          : *activation_view(walkable(g.dst(), hints, positions && hints.size() > 1 && hints[1] ? 1 : 0));
  const std::int64_t planes = view.n * (view.padded_c / view.block), block = view.block;
  std::vector<TensorDesc> args = {in_view(view, g.dst(), type)};
  if (positions) args.push_back(in_view(view, g.dst(), g.workspace_type()));
  args.push_back(in_view(view, g.src(), type));
  return std::make_shared<KernelOp>(std::move(args), [=](std::span<std::byte* const> p) {
    with_stored(type, [&]<class T>(T) {
      backward(g, planes, block, as<T>(p[0]), positions ? p[1] : nullptr, as<T>(p[positions ? 2 : 1]));
    });
  });
}

}  // namespace convnet::cpu::own
