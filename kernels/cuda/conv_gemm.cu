// Convolutions as matrix products: every window becomes a row of a matrix. Used where there is no cuDNN.
#include "kernels/cuda/activations.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/sum_rows.h"
#include "kernels/cuda/windows.h"

namespace convnet::cuda {
namespace {

/// The matrix of windows has a row for every output pixel. It holds the groups of channels one after the
/// other; of each the taps, row by row; of each its channels: the order of the weights in memory.
struct Shape {
  View image;  ///< the input
  int oh, ow;
  Windows windows;
  std::int64_t inputs;      ///< channels of a group
  std::int64_t row, width;  ///< of a window: of one group, of all

  /// With vectors of `lanes` channels for channels.
  Shape in_vectors(int lanes) const {
    Shape s = *this;
    s.image = cuda::in_vectors(image, lanes);
    s.inputs /= lanes, s.row /= lanes, s.width /= lanes;
    return s;
  }
};

template <int Lanes>
struct GatherWindows {
  Shape s;
  const Vector<float, Lanes>* src;
  Vector<float, Lanes>* columns;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const Quotient pixel = divide(i, s.width);
    const Quotient group = divide(pixel.rest, s.row);
    const Quotient tap = divide(group.rest, s.inputs);
    const Quotient at = divide(tap.value, s.windows.size);
    const Quotient line = divide(pixel.value, s.ow);
    const Quotient image = divide(line.value, s.oh);
    const std::int64_t y = s.windows.origin(static_cast<int>(image.rest)) + at.value;
    const std::int64_t x = s.windows.origin(static_cast<int>(line.rest)) + at.rest;
    const bool inside = y >= 0 && y < s.image.h && x >= 0 && x < s.image.w;
    columns[i] = inside ? src[s.image.index(image.value, group.value * s.inputs + tap.rest, y, x)]
                        : Vector<float, Lanes>{};
  }
};

/// The opposite: every input is the sum of the places that it was copied to, by increasing window.
template <int Lanes>
struct SumWindows {
  Shape s;
  const Vector<float, Lanes>* columns;
  Vector<float, Lanes>* diff_src;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = s.image.place(i);
    const Pixel pixel(s.image, at);
    const Quotient group = divide(at.c, s.inputs);
    const Range lines = s.windows.holding(pixel.y, s.oh), places = s.windows.holding(pixel.x, s.ow);
    const Vector<float, Lanes>* own = columns + group.value * s.row + group.rest;
    Vector<float, Lanes> sum{};
    for (int oy = lines.begin; oy < lines.end; ++oy) {
      const int tap_y = pixel.y - s.windows.origin(oy);
      for (int ox = places.begin; ox < places.end; ++ox) {
        const int tap = tap_y * s.windows.size + pixel.x - s.windows.origin(ox);
        const Vector<float, Lanes> part = own[((at.n * s.oh + oy) * s.ow + ox) * s.width + tap * s.inputs];
        CONVNET_UNROLL
        for (int lane = 0; lane < Lanes; ++lane) sum.lane[lane] += part.lane[lane];
      }
    }
    diff_src[i] = sum;
  }
};

template <int Lanes>
void gather_windows(Stream stream, const Shape& s, std::int64_t count, const float* src, float* columns) {
  using Value = Vector<float, Lanes>;
  for_each(stream, count / Lanes,
           GatherWindows<Lanes>{s.in_vectors(Lanes), reinterpret_cast<const Value*>(src),
                                reinterpret_cast<Value*>(columns)});
}
template <int Lanes>
void sum_windows(Stream stream, const Shape& s, std::int64_t count, const float* columns, float* diff_src) {
  using Value = Vector<float, Lanes>;
  for_each(stream, count / Lanes,
           SumWindows<Lanes>{s.in_vectors(Lanes), reinterpret_cast<const Value*>(columns),
                             reinterpret_cast<Value*>(diff_src)});
}

/// The input's view; channels last where that is the same memory.
View image_view(const TensorDesc& input) {
  View view = channels_view(input);
  view.last = view.last || view.c == 1;
  return view;
}

/// What all passes of a convolution share.
struct Columns {
  Columns(const ConvGeometry& g, const TensorDesc& input, std::int64_t most_bytes)
      : s{image_view(input),        static_cast<int>(g.oh),
          static_cast<int>(g.ow),   {-g.pad, g.stride, g.filter},
          g.c / g.groups,           g.c / g.groups * g.filter * g.filter,
          g.c * g.filter * g.filter},
        weights_step(g.k / g.groups * s.row),
        pixels(g.oh * g.ow),
        in_floats(g.c * g.h * g.w),
        out_floats(g.k * pixels),
        copied(!s.image.last || g.filter != 1 || g.stride != 1 || g.pad != 0 || g.oh != g.h || g.ow != g.w),
        vectors(s.image.last && s.inputs % kLanes == 0),
        chunks(g.n, copied ? pixels * s.width * size_of(DataType::f32) : 0, most_bytes) {}
  Shape s;
  std::int64_t weights_step;           ///< weights of a group
  std::int64_t pixels;                 ///< of an image's output
  std::int64_t in_floats, out_floats;  ///< of an image
  bool copied;                         ///< otherwise the input itself is the matrix of windows
  bool vectors;                        ///< channels are moved by several
  Chunks chunks;                       ///< of images

  std::int64_t floats() const { return copied ? chunks.size * pixels * s.width : 0; }

  /// The windows of a chunk, given its input: copied to `memory`, where they have to be.
  const float* gather(Stream stream, std::int64_t chunk, const float* src, float* memory) const {
    if (!copied) return src;
    const std::int64_t count = chunks.size_of(chunk) * pixels * s.width;
    (vectors ? gather_windows<kLanes> : gather_windows<1>)(stream, s, count, src, memory);
    return memory;
  }
  void sum(Stream stream, std::int64_t chunk, const float* memory, float* diff_src) const {
    const std::int64_t count = chunks.size_of(chunk) * in_floats;
    (vectors ? sum_windows<kLanes> : sum_windows<1>)(stream, s, count, memory, diff_src);
  }
};

/// Activations and weights channels last, but for an input that is hinted plain: it may be a flat vector that
/// is read as maps, and cannot lie otherwise.
std::vector<TensorDesc> conv_tensors(const OpDesc& op, const LayoutHints& hints, std::size_t input) {
  std::vector<TensorDesc> tensors = argument_tensors(op);
  for (TensorDesc& t : tensors) t = channels_last(t.dims);
  tensors[input] = hinted_or_preferred(tensors[input].dims, hints, input);
  return tensors;
}

}  // namespace

Prepared prepare_in_chunks(const ConvForward& op, const LayoutHints& hints, const Context& context,
                           std::int64_t most_bytes) {
  const ConvGeometry& g = op.g;
  std::vector<TensorDesc> tensors = conv_tensors(op, hints, 0);
  if (g.n == 0) return prepare_empty(op, std::move(tensors));
  const Columns w(g, tensors[0], most_bytes);
  const std::int64_t outputs = g.k / g.groups;
  Gemm gemm;
  gemm.trans_b = true;
  gemm.n = outputs, gemm.k = w.s.row;
  gemm.lda = w.s.width, gemm.ldb = w.s.row, gemm.ldc = g.k;
  gemm.batch = g.groups, gemm.a_step = w.s.row, gemm.b_step = w.weights_step, gemm.c_step = outputs;
  gemm.accumulate = op.accumulate;
  const bool one = g.groups == 1;
  gemm.bias = op.bias && one;
  gemm.relu = op.relu && one;
  const ChunkGemms products(gemm, &Gemm::m, w.pixels, w.chunks, context);
  Areas areas;
  const std::int64_t columns_area = areas.add_floats(w.floats());
  const std::int64_t product_area = areas.add(products.workspace_bytes());
  return std::make_shared<ProductOp>(
      std::move(tensors), areas.bytes(),
      [=, channels = g.k, has_bias = op.bias, relu = op.relu](Queue* queue, std::span<std::byte* const> p,
                                                              std::byte* workspace) {
        const float* bias = has_bias ? as_floats(p[2]) : nullptr;
        for (std::int64_t i = 0; i < w.chunks.count; ++i) {
          const float* src = as_floats(p[0]) + w.chunks.begin(i) * w.in_floats;
          float* dst = as_floats(p.back()) + w.chunks.begin(i) * w.out_floats;
          const float* columns = w.gather(stream_of(queue), i, src, as_floats(workspace + columns_area));
          products[i].run(queue, columns, as_floats(p[1]), one ? bias : nullptr, dst,
                          workspace + product_area);
          if (!one)
            finish_columns(stream_of(queue), w.chunks.size_of(i) * w.pixels, channels, bias, relu, dst);
        }
      });
}

Prepared prepare_in_chunks(const ConvBackwardData& op, const LayoutHints& hints, const Context& context,
                           std::int64_t most_bytes) {
  const ConvGeometry& g = op.g;
  std::vector<TensorDesc> tensors = conv_tensors(op, hints, 2);
  if (g.n == 0) return prepare_empty(op, std::move(tensors));
  const Columns w(g, tensors[2], most_bytes);
  const std::int64_t outputs = g.k / g.groups;
  Gemm gemm;
  gemm.n = w.s.row, gemm.k = outputs;
  gemm.lda = g.k, gemm.ldb = w.s.row, gemm.ldc = w.s.width;
  gemm.batch = g.groups, gemm.a_step = outputs, gemm.b_step = w.weights_step, gemm.c_step = w.s.row;
  const ChunkGemms products(gemm, &Gemm::m, w.pixels, w.chunks, context);
  Areas areas;
  const std::int64_t columns_area = areas.add_floats(w.floats());
  const std::int64_t product_area = areas.add(products.workspace_bytes());
  return std::make_shared<ProductOp>(
      std::move(tensors), areas.bytes(),
      [=](Queue* queue, std::span<std::byte* const> p, std::byte* workspace) {
        for (std::int64_t i = 0; i < w.chunks.count; ++i) {
          const float* diff_dst = as_floats(p[0]) + w.chunks.begin(i) * w.out_floats;
          float* diff_src = as_floats(p[2]) + w.chunks.begin(i) * w.in_floats;
          float* columns = w.copied ? as_floats(workspace + columns_area) : diff_src;
          products[i].run(queue, diff_dst, as_floats(p[1]), nullptr, columns, workspace + product_area);
          if (w.copied) w.sum(stream_of(queue), i, columns, diff_src);
        }
      });
}

Prepared prepare_in_chunks(const ConvBackwardWeights& op, const LayoutHints& hints, const Context& context,
                           std::int64_t most_bytes) {
  const ConvGeometry& g = op.g;
  std::vector<TensorDesc> tensors = conv_tensors(op, hints, 0);
  if (g.n == 0) return prepare_empty(op, std::move(tensors));
  const Columns w(g, tensors[0], most_bytes);
  const std::int64_t outputs = g.k / g.groups;
  Gemm gemm;
  gemm.trans_a = true;
  gemm.m = outputs, gemm.n = w.s.row;
  gemm.lda = g.k, gemm.ldb = w.s.width, gemm.ldc = w.s.row;
  gemm.batch = g.groups, gemm.a_step = outputs, gemm.b_step = w.s.row, gemm.c_step = w.weights_step;
  const ChunkGemms products(gemm, &Gemm::k, w.pixels, w.chunks, context);
  const SumRows bias_sums(g.n * w.pixels, g.k);
  Areas areas;
  const std::int64_t columns_area = areas.add_floats(w.floats());
  const std::int64_t product_area = areas.add(products.workspace_bytes());
  const std::int64_t sums_area = areas.add(op.bias ? bias_sums.workspace_bytes() : 0);
  return std::make_shared<ProductOp>(
      std::move(tensors), areas.bytes(),
      [=, bias = op.bias](Queue* queue, std::span<std::byte* const> p, std::byte* workspace) {
        for (std::int64_t i = 0; i < w.chunks.count; ++i) {
          const float* src = as_floats(p[0]) + w.chunks.begin(i) * w.in_floats;
          const float* diff_dst = as_floats(p[1]) + w.chunks.begin(i) * w.out_floats;
          const float* columns = w.gather(stream_of(queue), i, src, as_floats(workspace + columns_area));
          products[i].run(queue, diff_dst, columns, nullptr, as_floats(p[2]), workspace + product_area);
        }
        if (bias) bias_sums.run(stream_of(queue), as_floats(p[1]), workspace + sums_area, as_floats(p[3]));
      });
}

#if !defined(CONVNET_CUDNN)  // else they are conv_cudnn.cpp's
template <>
Prepared prepare(const ConvForward& op, const LayoutHints& hints, const Context& context) {
  return prepare_in_chunks(op, hints, context, kMostColumnBytes);
}
template <>
Prepared prepare(const ConvBackwardData& op, const LayoutHints& hints, const Context& context) {
  return prepare_in_chunks(op, hints, context, kMostColumnBytes);
}
template <>
Prepared prepare(const ConvBackwardWeights& op, const LayoutHints& hints, const Context& context) {
  return prepare_in_chunks(op, hints, context, kMostColumnBytes);
}
#endif

}  // namespace convnet::cuda
