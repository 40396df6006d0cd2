// Convolutions as matrix products: every window becomes a row of a matrix. Used where nothing else can do a
// convolution.
#include <type_traits>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/conv_edges.h"
#include "kernels/cuda/sum_rows.h"
#include "kernels/cuda/windows.h"

namespace convnet::cuda {
namespace {

/// The matrix of windows. It has a row for every output pixel, which holds the groups of channels one after
/// the other. A group consists of taps, row by row, and a tap of channels, as weights do in memory.
struct Shape {
  View image;  ///< the input
  int oh, ow;
  Windows rows, columns;
  std::int64_t inputs;      ///< channels of a group
  std::int64_t row, width;  ///< elements of a window: in one group, in all groups

  /// Returns the shape with vectors of `lanes` channels in place of channels.
  Shape in_vectors(int lanes) const {
    Shape s = *this;
    s.image = cuda::in_vectors(image, lanes);
    s.inputs /= lanes, s.row /= lanes, s.width /= lanes;
    return s;
  }
};

/// Copies windows of the input to the matrix of windows.
template <class T, int Lanes>
struct GatherWindows {
  GatherWindows(const Shape& shape, const Vector<T, Lanes>* input, Vector<T, Lanes>* matrix)
      : s(shape),
        src(input),
        columns(matrix),
        by_width(s.width),
        by_row(s.row),
        by_inputs(s.inputs),
        by_taps(s.columns.size),
        by_ow(s.ow),
        by_oh(s.oh) {}

  Shape s;
  const Vector<T, Lanes>* src;
  Vector<T, Lanes>* columns;
  Divisor by_width, by_row, by_inputs, by_taps, by_ow, by_oh;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const Quotient pixel = by_width.divide_index(i);
    const Quotient group = by_row.divide(static_cast<std::uint32_t>(pixel.rest));
    const Quotient tap = by_inputs.divide(static_cast<std::uint32_t>(group.rest));
    const Quotient at = by_taps.divide(static_cast<std::uint32_t>(tap.value));
    const Quotient line = by_ow.divide_index(pixel.value);
    const Quotient image = by_oh.divide_index(line.value);
    const std::int64_t y = s.rows.origin(static_cast<int>(image.rest)) + at.value * s.rows.dilation;
    const std::int64_t x = s.columns.origin(static_cast<int>(line.rest)) + at.rest * s.columns.dilation;
    const bool inside = y >= 0 && y < s.image.h && x >= 0 && x < s.image.w;
    columns[i] = inside ? src[s.image.index(image.value, group.value * s.inputs + tap.rest, y, x)]
                        : Vector<T, Lanes>{};
  }
};

/// Makes every input the sum of the places that GatherWindows copies it to, by increasing window.
template <class T, int Lanes>
struct SumWindows {
  Shape s;
  const Vector<float, Lanes>* columns;
  Numbers<T, Lanes> diff_src;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = s.image.place(i);
    const Pixel pixel(s.image, at);
    const Quotient group = divide(at.c, s.inputs);
    const Range lines = s.rows.holding(pixel.y, s.oh), places = s.columns.holding(pixel.x, s.ow);
    const Vector<float, Lanes>* own = columns + group.value * s.row + group.rest;
    Vector<float, Lanes> sum{};
    for (int oy = lines.begin; oy < lines.end; ++oy) {
      const int tap_y = s.rows.tap(pixel.y, oy);
      if (tap_y < 0) continue;
      for (int ox = places.begin; ox < places.end; ++ox) {
        const int tap_x = s.columns.tap(pixel.x, ox);
        if (tap_x < 0) continue;
        const int tap = tap_y * s.columns.size + tap_x;
        const Vector<float, Lanes> part = own[((at.n * s.oh + oy) * s.ow + ox) * s.width + tap * s.inputs];
        CONVNET_UNROLL
        for (int lane = 0; lane < Lanes; ++lane) sum.lane[lane] += part.lane[lane];
      }
    }
    diff_src.set(i, sum);
  }
};

/// Calls f(stored, lanes) with a value as `type` is stored and the channels that are moved together.
template <class F>
void with_type_and_lanes(DataType type, bool vectors, const F& f) {
  with_stored_type(type, [&](auto stored) {
    if (vectors)
      f(stored, std::integral_constant<int, kLanes>{});
    else
      f(stored, std::integral_constant<int, 1>{});
  });
}

/// The sizes that all passes of a convolution share.
struct Columns {
  /// `column_type` is the type of the copied windows.
  Columns(const ConvGeometry& g, const TensorDesc& input, DataType column_type, std::int64_t most_bytes)
      : type(input.type),
        s{image_view(input),
          static_cast<int>(g.oh),
          static_cast<int>(g.ow),
          Windows(g.rows()),
          Windows(g.columns()),
          g.c / g.groups,
          g.c / g.groups * g.filter.area(),
          g.c * g.filter.area()},
        weights_step(g.k / g.groups * s.row),
        pixels(g.oh * g.ow),
        in_bytes(g.c * g.h * g.w * size_of(type)),
        out_bytes(g.k * pixels * size_of(type)),
        copied(copies_windows(g, s.image)),
        vectors(s.image.last && s.inputs % kLanes == 0),
        window_bytes(cuda::window_bytes(g, s.image, column_type)),
        chunks(g.n, window_bytes, most_bytes) {}
  DataType type;  ///< type of the activations
  Shape s;
  std::int64_t weights_step;         ///< weights of a group
  std::int64_t pixels;               ///< pixels of an image's output
  std::int64_t in_bytes, out_bytes;  ///< bytes of an image
  bool copied;                       ///< otherwise the input itself is the matrix of windows
  bool vectors;                      ///< channels are moved by several
  std::int64_t window_bytes;         ///< bytes of the copied windows of an image
  Chunks chunks;                     ///< chunks of images

  std::int64_t bytes() const { return chunks.size * window_bytes; }
  /// Returns the alignment in bytes of the first image of each chunk.
  std::int64_t alignment() const {
    const std::int64_t images = chunks.count > 1 ? chunks.size : 0;
    return alignment_of({images * in_bytes, images * out_bytes});
  }

  /// Returns the matrix of windows of a chunk, whose input is `src`: a copy in `memory`, or `src` itself.
  const std::byte* gather(Stream stream, std::int64_t chunk, const std::byte* src, std::byte* memory) const {
    if (!copied) return src;
    const std::int64_t count = chunks.size_of(chunk) * pixels * s.width;
    with_type_and_lanes(type, vectors, [&](auto stored, auto lanes) {
      using Value = Vector<decltype(stored), lanes()>;
      for_each(
          stream, count / lanes(),
          GatherWindows<decltype(stored), lanes()>(s.in_vectors(lanes()), reinterpret_cast<const Value*>(src),
                                                   reinterpret_cast<Value*>(memory)));
    });
    return memory;
  }
  /// Sums the f32 matrix of windows of a chunk, the gradient of its input, to `diff_src`.
  void sum(Stream stream, std::int64_t chunk, std::byte* memory, std::byte* diff_src) const {
    const std::int64_t count = chunks.size_of(chunk) * in_bytes / size_of(type);
    with_type_and_lanes(type, vectors, [&](auto stored, auto lanes) {
      for_each(
          stream, count / lanes(),
          SumWindows<decltype(stored), lanes()>{s.in_vectors(lanes()), as_vectors<float, lanes()>(memory),
                                                Numbers<decltype(stored), lanes()>(diff_src)});
    });
  }
};

}  // namespace

Prepared prepare_in_chunks(const ConvForward& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes) {
  const ConvGeometry& g = op.g;
  if (g.n * g.oh * g.ow == 0) return prepare_empty(op, form);
  const DataType type = form.args[0].type;
  const Columns w(g, form.args[0], type, most_bytes);
  const std::int64_t outputs = g.k / g.groups;
  Gemm gemm;
  gemm.factors = gemm.result = type;
  gemm.trans_b = true;
  gemm.n = outputs, gemm.k = w.s.row;
  gemm.lda = w.s.width, gemm.ldb = w.s.row, gemm.ldc = g.k;
  gemm.batch = g.groups, gemm.a_step = w.s.row, gemm.b_step = w.weights_step, gemm.c_step = outputs;
  gemm.accumulate = op.accumulate;
  gemm.alignment = w.alignment();
  const ChunkGemms products(gemm, &Gemm::m, w.pixels, w.chunks, context);
  Areas areas;
  const std::int64_t columns_area = areas.add(w.bytes());
  const std::int64_t product_area = areas.add(products.workspace_bytes());
  return std::make_shared<ProductOp>(
      form, areas.bytes(),
      [=, channels = g.k, has_bias = op.bias, relu = op.relu](Queue* queue, std::span<std::byte* const> p,
                                                              std::byte* workspace) {
        const std::byte* bias = has_bias ? p[2] : nullptr;
        for (std::int64_t i = 0; i < w.chunks.count; ++i) {
          const std::byte* src = p[0] + w.chunks.begin(i) * w.in_bytes;
          std::byte* dst = p.back() + w.chunks.begin(i) * w.out_bytes;
          const std::byte* columns = w.gather(stream_of(queue), i, src, workspace + columns_area);
          products[i].run(queue, columns, p[1], dst, workspace + product_area);
          add_bias_relu(stream_of(queue), w.chunks.size_of(i) * w.pixels, channels, bias, type, relu, type,
                        dst);
        }
      },
      "im2col");
}

Prepared prepare_in_chunks(const ConvBackwardData& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes) {
  const ConvGeometry& g = op.g;
  if (g.n * g.oh * g.ow == 0) return prepare_empty(op, form);
  const Columns w(g, form.args[2], DataType::f32, most_bytes);
  const std::int64_t outputs = g.k / g.groups;
  Gemm gemm;
  gemm.factors = w.type;
  gemm.result = w.copied ? DataType::f32 : w.type;
  gemm.n = w.s.row, gemm.k = outputs;
  gemm.lda = g.k, gemm.ldb = w.s.row, gemm.ldc = w.s.width;
  gemm.batch = g.groups, gemm.a_step = outputs, gemm.b_step = w.weights_step, gemm.c_step = w.s.row;
  gemm.alignment = w.alignment();
  const ChunkGemms products(gemm, &Gemm::m, w.pixels, w.chunks, context);
  Areas areas;
  const std::int64_t columns_area = areas.add(w.bytes());
  const std::int64_t product_area = areas.add(products.workspace_bytes());
  return std::make_shared<ProductOp>(
      form, areas.bytes(),
      [=](Queue* queue, std::span<std::byte* const> p, std::byte* workspace) {
        for (std::int64_t i = 0; i < w.chunks.count; ++i) {
          const std::byte* diff_dst = p[0] + w.chunks.begin(i) * w.out_bytes;
          std::byte* diff_src = p[2] + w.chunks.begin(i) * w.in_bytes;
          std::byte* columns = w.copied ? workspace + columns_area : diff_src;
          products[i].run(queue, diff_dst, p[1], columns, workspace + product_area);
          if (w.copied) w.sum(stream_of(queue), i, columns, diff_src);
        }
      },
      "im2col");
}

Prepared prepare_in_chunks(const ConvBackwardWeights& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes) {
  const ConvGeometry& g = op.g;
  if (g.n * g.oh * g.ow == 0) return prepare_empty(op, form);
  const Columns w(g, form.args[0], form.args[0].type, most_bytes);
  const std::int64_t outputs = g.k / g.groups, weights = element_count(g.weights());
  // Sums over several chunks stay f32 until they are complete.
  const DataType gradient = form.args[2].type;
  const bool rounds = gradient != DataType::f32 && w.chunks.count > 1;
  Gemm gemm;
  gemm.factors = w.type;
  gemm.result = rounds ? DataType::f32 : gradient;
  gemm.trans_a = true;
  gemm.m = outputs, gemm.n = w.s.row;
  gemm.lda = g.k, gemm.ldb = w.s.width, gemm.ldc = w.s.row;
  gemm.batch = g.groups, gemm.a_step = outputs, gemm.b_step = w.s.row, gemm.c_step = w.weights_step;
  gemm.alignment = w.alignment();
  const ChunkGemms products(gemm, &Gemm::k, w.pixels, w.chunks, context);
  const SumRows bias_sums(g.n * w.pixels, g.k);
  Areas areas;
  const std::int64_t columns_area = areas.add(w.bytes());
  const std::int64_t weights_area = areas.add_floats(rounds ? weights : 0);
  const std::int64_t product_area = areas.add(products.workspace_bytes());
  const std::int64_t sums_area = areas.add(op.bias ? sum_rows_bytes(g.n * w.pixels, g.k) : 0);
  return std::make_shared<ProductOp>(
      form, areas.bytes(),
      [=, bias = op.bias](Queue* queue, std::span<std::byte* const> p, std::byte* workspace) {
        std::byte* const product = rounds ? workspace + weights_area : p[2];
        for (std::int64_t i = 0; i < w.chunks.count; ++i) {
          const std::byte* src = p[0] + w.chunks.begin(i) * w.in_bytes;
          const std::byte* diff_dst = p[1] + w.chunks.begin(i) * w.out_bytes;
          const std::byte* columns = w.gather(stream_of(queue), i, src, workspace + columns_area);
          products[i].run(queue, diff_dst, columns, product, workspace + product_area);
        }
        if (rounds) round_sums(stream_of(queue), weights, product, gradient, p[2]);
        if (bias) bias_sums.run(stream_of(queue), w.type, p[1], workspace + sums_area, as_floats(p[3]));
      },
      "im2col");
}

}  // namespace convnet::cuda
