// Products of transformed tiles and filters, for Winograd's method. Only for files that are compiled with
// AVX-512, or with AVX2 and FMA.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/cpu/own_kernel.h"
#include "kernels/cpu/winograd_transforms.h"

namespace convnet::cpu::winograd {

/// The registers that hold the sums of a product: three quarters of them, because the factors need some, too.
constexpr int kSums = kLanes == 16 ? 24 : 12;
/// Tiles of a block if there are few filters. Processors without AVX-512 have smaller caches.
constexpr std::int64_t kTiles = kLanes == 16 ? 96 : 48;
constexpr std::int64_t kRowStep = kSums;  ///< a multiple of the rows of tiles that any multiply() takes

/// 32 bits of a factor: one f32 number, or two bf16 numbers whose products with those of another unit are
/// added.
using Unit = std::uint32_t;
using Units = Vector<Unit, kLanes>::Type;

/// Products of numbers of type T.
template <class T>
struct Product;

template <>
struct Product<float> {
  static constexpr std::int64_t depth = 1;  ///< numbers in a unit
  /// Returns sum + a b.
  [[gnu::always_inline]] static inline Vec add(Vec sum, Unit a, const Units& b) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(a))), (__m512)b, sum);
#else
    return _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(a))), (__m256)b, sum);
#endif
  }
  /// Stores lane i of the vectors as unit i.
  [[gnu::always_inline]] static inline void store_units(Unit* p, const std::array<Vec, 1>& v) {
    store(p, v[0]);
  }
};

#if defined(__AVX512BF16__)
template <>
struct Product<BFloat16> {
  static constexpr std::int64_t depth = 2;
  [[gnu::always_inline]] static inline Vec add(Vec sum, Unit a, const Units& b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(static_cast<int>(a)), (__m512bh)b);
  }
  [[gnu::always_inline]] static inline void store_units(Unit* p, const std::array<Vec, 2>& v) {
    constexpr std::array<std::uint16_t, 32> order = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                     21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                     11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    Vector<std::uint16_t, 32>::Type indices;
    load(order.data(), indices);
    store(p, (Units)_mm512_maskz_permutexvar_epi16(~__mmask32{0}, (__m512i)indices,
                                                   (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0])));
  }
};
#endif

/// Converts an int that counts taps or points to an index.
constexpr std::size_t index_of(int at) { return static_cast<std::size_t>(at); }

/// The input or the output of a convolution: (N,C,H,W) stored in blocks of kLanes channels.
struct Side {
  std::int64_t channels, h, w;
  std::int64_t c() const { return (channels + kLanes - 1) / kLanes * kLanes; }  ///< channels with padding
  std::int64_t image() const { return c() * h * w; }                            ///< elements of an image
  std::int64_t block() const { return kLanes * h * w; }  ///< elements of kLanes channels of an image
};

/// The height or the width of a grid of images that is divided into tiles as if it were one image, so that
/// fewer tiles hang over borders. Images of 13x13 pixels take 16 tiles of 4x4 outputs each, but four of them
/// together take 49. Pixel p of image i along the dimension is pixel i * pitch + p of the grid; between two
/// images there are zeros.
struct GridDimension {
  std::int64_t images = 1;  ///< along this dimension
  std::int64_t pitch = 0;

  /// Where a row or a column of a window is; `pixel` is -1 if it is outside of all images.
  struct Line {
    std::int64_t image, pixel;
  };
  /// Returns the rows or columns of a window that begins at `first`; an image has `size` pixels.
  template <int Size>
  std::array<Line, Size> lines(std::int64_t first, std::int64_t size) const {
    std::array<Line, Size> result;
    std::int64_t image = first > 0 && images > 1 ? std::min(first / pitch, images - 1) : 0;
    std::int64_t pixel = first - image * pitch;
    for (Line& line : result) {
      if (pixel == pitch && image + 1 < images) {
        ++image;
        pixel = 0;
      }
      line = {image, pixel >= 0 && pixel < size ? pixel : -1};
      ++pixel;
    }
    return result;
  }
};

/// A window of Size x Size pixels of kLanes channels. Pixels outside of all images are zero.
template <int Size, class T>
class Window {
 public:
  using Lines = std::array<GridDimension::Line, Size>;

  /// Makes a window that lies outside of all images.
  Window() { at_.fill(-1); }
  /// Makes the window of the given rows and columns in a grid with `across` images in a row, of which the
  /// first is image `first` of `n`.
  Window(const Side& side, const Lines& rows, const Lines& columns, std::int64_t first, std::int64_t across,
         std::int64_t n) {
    for (int i = 0; i < Size; ++i)
      for (int j = 0; j < Size; ++j) {
        const GridDimension::Line &row = rows[index_of(i)], &column = columns[index_of(j)];
        const std::int64_t image = first + row.image * across + column.image;
        const bool inside = row.pixel >= 0 && column.pixel >= 0 && image < n;
        at_[index_of(i * Size + j)] =
            inside ? image * side.image() + (row.pixel * side.w + column.pixel) * kLanes : -1;
      }
  }
  bool inside(int i, int j) const { return at_[index_of(i * Size + j)] >= 0; }
  /// Returns the number of pixels that are inside an image.
  std::int64_t count() const {
    return std::count_if(at_.begin(), at_.end(), [](std::int64_t at) { return at >= 0; });
  }
  /// Returns the offset of a pixel from the same channels of the first pixel of all images. The pixel must be
  /// inside.
  std::int64_t offset(int i, int j) const { return at_[index_of(i * Size + j)]; }

  /// Returns a pixel; `block` points to the channels of the first pixel of all images.
  [[gnu::always_inline]] Vec load(const T* block, int i, int j) const {
    const std::int64_t at = at_[index_of(i * Size + j)];
    const T* const p = at < 0 ? kZeros.data() : block + at;
    _mm_prefetch(p + Size * kLanes, _MM_HINT_T0);  // the tiles to the right come next
    Vec v;
    load_floats<kLanes>(p, kLanes, v);
    return v;
  }

 private:
  alignas(64) static constexpr std::array<T, kLanes> kZeros{};
  std::array<std::int64_t, std::size_t{Size} * Size> at_;
};

/// A convolution, forward or backward, whose output is divided into tiles.
template <class Method>
struct Tiling {
  std::int64_t n;
  Side in, out;
  std::int64_t pad;  ///< zeros before the first row and column of the input
  GridDimension down{}, across{};

  std::int64_t rows() const { return tiles_of(down, out.h); }       ///< of tiles in a grid
  std::int64_t columns() const { return tiles_of(across, out.w); }  ///< of tiles in a grid
  std::int64_t tiles() const {
    const std::int64_t images = down.images * across.images;
    return (n + images - 1) / images * rows() * columns();
  }
  /// Returns the fraction of the computed outputs that exist.
  double used() const {
    return static_cast<double>(n * out.h * out.w) /
           static_cast<double>(tiles() * Method::outputs * Method::outputs);
  }

  struct Place {
    std::int64_t grid, row, column;  ///< row and column count tiles
  };
  Place place_of(std::int64_t tile) const {
    const std::int64_t row = tile / columns();
    return {row / rows(), row % rows(), tile % columns()};
  }
  /// Return the windows of the outputs and of the inputs of a tile.
  template <class T>
  Window<Method::outputs, T> outputs(std::int64_t tile) const {
    return window<Method::outputs, T>(out, place_of(tile), Method::outputs, 0);
  }
  template <class T>
  Window<Method::inputs, T> inputs(std::int64_t tile) const {
    return window<Method::inputs, T>(in, place_of(tile), Method::step, pad);
  }

  /// Puts as many images into a grid, up to 4x4, as give the fewest tiles. Only for methods with stride 1.
  void choose_grid() {
    down.pitch = pitch(in.h, out.h);
    across.pitch = pitch(in.w, out.w);
    Tiling best = *this;
    for (down.images = 1; down.images <= 4; ++down.images)
      for (across.images = 1; across.images <= 4; ++across.images)
        if (tiles() < best.tiles()) best = *this;
    *this = best;
  }

 private:
  /// The zeros below an image are the padding of the next one, too. No window reaches two images, even if the
  /// padding differs from side to side.
  std::int64_t pitch(std::int64_t inputs, std::int64_t outputs) const {
    constexpr std::int64_t kReach = Method::inputs - Method::outputs;  // a window's pixels but one
    return std::max({inputs + pad, outputs, outputs + kReach - pad});
  }
  static std::int64_t tiles_of(const GridDimension& grid, std::int64_t outputs) {
    return ((grid.images - 1) * grid.pitch + outputs + Method::outputs - 1) / Method::outputs;
  }
  template <int Size, class T>
  Window<Size, T> window(const Side& side, const Place& place, std::int64_t step, std::int64_t before) const {
    return {side,
            down.lines<Size>(place.row * step - before, side.h),
            across.lines<Size>(place.column * step - before, side.w),
            place.grid * down.images * across.images,
            across.images,
            n};
  }
};

template <class Method>
Tiling<Method> forward_tiling(const ConvGeometry& g) {
  Tiling<Method> tiling{g.n, {g.c, g.h, g.w}, {g.k, g.oh, g.ow}, g.pad.x};
  if (Method::stride == 1) tiling.choose_grid();
  return tiling;
}
/// The gradient of the input is a convolution of the gradient of the output with the filters rotated by 180
/// degrees.
template <class Method>
Tiling<typename Method::Backward> backward_tiling(const ConvGeometry& g) {
  Tiling<typename Method::Backward> tiling{
      g.n, {g.k, g.oh, g.ow}, {g.c, g.h, g.w}, Method::stride == 1 ? Method::taps - 1 - g.pad.x : 0};
  if (Method::stride == 1) tiling.choose_grid();
  return tiling;
}

/// A matrix of units: (row, k) is at row * row_step + k * step.
struct Factor {
  const Unit* data;
  std::int64_t row_step, step;
};

/// Computes out(row, column) = [out +] sum over k < depth of a(row, k) b(k, column), for Rows rows and
/// kLanes * Vecs columns. `b` is row-major: the units of the columns are consecutive, those of consecutive k
/// are `b_step` apart.
template <class T, int Rows, int Vecs>
void multiply(const Factor& a, const Unit* b, std::int64_t b_step, std::int64_t depth, bool add, float* out,
              std::int64_t out_step) {
  std::array<Line<Vecs>, Rows> sums;
  unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<Vecs>([&](auto z) __attribute__((always_inline)) { sums[r][z] = Vec{}; });
  });
  const Unit* from = a.data;
  for (std::int64_t k = 0; k < depth; ++k, from += a.step, b += b_step) {
    std::array<Units, Vecs> columns;
    unrolled<Vecs>([&](auto z) __attribute__((always_inline)) { load(b + z * kLanes, columns[z]); });
    unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
      const Unit factor = from[r * a.row_step];
      unrolled<Vecs>([&](auto z) __attribute__((always_inline)) {
        sums[r][z] = Product<T>::add(sums[r][z], factor, columns[z]);
      });
    });
  }
  // The old value is added last: the sums over many blocks of tiles lose less precision.
  unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<Vecs>([&](auto z) __attribute__((always_inline)) {
      float* const to = out + r * out_step + z * kLanes;
      Vec old{};
      if (add) load(to, old);
      store(to, old + sums[r][z]);
    });
  });
}

/// Does the same for `rows` rows, a multiple of Rows.
template <class T, int Rows, int Vecs>
void multiply_rows(std::int64_t rows, const Factor& a, const Unit* b, std::int64_t b_step, std::int64_t depth,
                   bool add, float* out, std::int64_t out_step) {
  for (std::int64_t r = 0; r < rows; r += Rows)
    multiply<T, Rows, Vecs>({a.data + r * a.row_step, a.row_step, a.step}, b, b_step, depth, add,
                            out + r * out_step, out_step);
}

/// Calls f(Constant<Vecs>) for a strip of Vecs vectors, at most Most. A strip is the columns of a product
/// that one multiply() computes.
template <int Most, class F>
void with_vecs(std::int64_t strip_width, const F& f) {
  unrolled<Most>([&](auto i) __attribute__((always_inline)) {
    if (strip_width == (i + 1) * kLanes) f(std::integral_constant<int, i + 1>{});
  });
}

/// Returns the distance in units from one point of transformed tiles to the next. Distances that are powers
/// of two would put all points of a tile into one set of the cache.
inline std::int64_t point_step(std::int64_t units) { return units + kLanes; }

/// Returns the bytes of `count` units or f32 numbers, rounded up to a multiple of kMemoryAlignment.
inline std::int64_t bytes_of(std::int64_t count) { return aligned(count * std::int64_t{sizeof(Unit)}); }

}  // namespace convnet::cpu::winograd
