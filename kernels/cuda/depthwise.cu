#include "kernels/cuda/depthwise.h"

#include <type_traits>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/conv_edges.h"
#include "kernels/cuda/sum_rows.h"
#include "kernels/cuda/windows.h"
#include "kernels/functors.h"

namespace convnet::cuda {
namespace {

/// Lays filters as [tap][map], so that the threads of neighbouring maps read neighbouring weights.
template <class T>
struct TransposeFilters {
  std::int64_t maps;
  int taps;
  bool flip;  ///< the last tap comes first
  Divisor by_maps;
  const T* src;
  T* dst;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const Quotient tap = by_maps.divide(static_cast<std::uint32_t>(i));
    const std::int64_t from = flip ? taps - 1 - tap.value : tap.value;
    dst[i] = src[tap.rest * taps + from];
  }
};

/// A thread computes some maps of a strip of outputs of a row, for which it reads each weight once.
template <class T, int Lanes>
struct Convolve {
  static constexpr int kStrip = 4;
  View src;     ///< elements are vectors
  View strips;  ///< the results, a pixel for each strip
  int ow;
  Windows rows, columns;
  Numbers<T, Lanes> images, filters, dst;
  Numbers<T, Lanes> bias;  ///< may be null
  bool accumulate, relu;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = strips.place(i);
    const Pixel strip(strips, at);
    const int first = strip.x * kStrip;
    Vector<float, Lanes> sums[kStrip] = {};
    CONVNET_UNROLL_BY(1)
    for (int ty = 0; ty < rows.size; ++ty) {
      const int y = rows.origin(strip.y) + ty * rows.dilation;
      if (y < 0 || y >= src.h) continue;
      CONVNET_UNROLL_BY(1)
      for (int tx = 0; tx < columns.size; ++tx) {
        const Vector<float, Lanes> weights = filters[(ty * columns.size + tx) * src.c + at.c];
        CONVNET_UNROLL
        for (int k = 0; k < kStrip; ++k) {
          const int x = columns.origin(first + k) + tx * columns.dilation;
          if (first + k >= ow || x < 0 || x >= src.w) continue;
          const Vector<float, Lanes> values = images[src.index(at.n, at.c, y, x)];
          CONVNET_UNROLL
          for (int lane = 0; lane < Lanes; ++lane)
            sums[k].lane[lane] += values.lane[lane] * weights.lane[lane];
        }
      }
    }
    Vector<float, Lanes> biases{};
    if (bias.memory != nullptr) biases = bias[at.c];
    CONVNET_UNROLL
    for (int k = 0; k < kStrip; ++k) {
      if (first + k >= ow) continue;
      const std::int64_t place = ((at.n * strips.h + strip.y) * ow + first + k) * src.c + at.c;
      Vector<float, Lanes> result = sums[k];
      if (accumulate) {
        const Vector<float, Lanes> before = dst[place];
        CONVNET_UNROLL
        for (int lane = 0; lane < Lanes; ++lane) result.lane[lane] += before.lane[lane];
      }
      CONVNET_UNROLL
      for (int lane = 0; lane < Lanes; ++lane) {
        if (bias.memory != nullptr) result.lane[lane] += biases.lane[lane];
        if (relu) result.lane[lane] = ReluFunctor{}.forward(result.lane[lane]);
      }
      dst.set(place, result);
    }
  }
};

/// The gradient of the images: a thread sums the windows that hold some maps of a pixel.
template <class T, int Lanes>
struct SumHolders {
  View src;  ///< the gradient; elements are vectors
  int oh, ow;
  Windows rows, columns;
  Numbers<T, Lanes> diff_dst, filters, diff_src;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = src.place(i);
    const Pixel pixel(src, at);
    const Range lines = rows.holding(pixel.y, oh), places = columns.holding(pixel.x, ow);
    Vector<float, Lanes> sum{};
    CONVNET_UNROLL_BY(1)
    for (int oy = lines.begin; oy < lines.end; ++oy) {
      const int ty = rows.tap(pixel.y, oy);
      if (ty < 0) continue;
      CONVNET_UNROLL_BY(1)
      for (int ox = places.begin; ox < places.end; ++ox) {
        const int tx = columns.tap(pixel.x, ox);
        if (tx < 0) continue;
        const Vector<float, Lanes> gradients = diff_dst[((at.n * oh + oy) * ow + ox) * src.c + at.c];
        const Vector<float, Lanes> weights = filters[(ty * columns.size + tx) * src.c + at.c];
        CONVNET_UNROLL
        for (int lane = 0; lane < Lanes; ++lane) sum.lane[lane] += gradients.lane[lane] * weights.lane[lane];
      }
    }
    diff_src.set(i, sum);
  }
};

/// The gradient of the filters: a thread sums a tap of some maps over a piece of the outputs. Threads of
/// neighbouring maps, then those of the other taps, read the same memory at the same time.
template <class T, int Lanes>
struct SumTaps {
  View src;  ///< elements are vectors
  int oh, ow;
  Windows rows, columns;
  std::int64_t outputs, piece;  ///< pixels of the outputs of all images, and of a piece of them
  Divisor by_vectors, by_taps;
  Numbers<T, Lanes> images, diff_dst;
  float* sums;  ///< [piece][map][tap]

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const int taps = rows.size * columns.size;
    const Quotient vector = by_vectors.divide(static_cast<std::uint32_t>(i));
    const Quotient tap = by_taps.divide(static_cast<std::uint32_t>(vector.value));
    const int ty = static_cast<int>(tap.rest) / columns.size, tx = static_cast<int>(tap.rest) % columns.size;
    const std::int64_t begin = tap.value * piece;
    const std::int64_t end = begin + piece < outputs ? begin + piece : outputs;
    const Quotient line = divide(begin, ow);
    const Quotient image = divide(line.value, oh);
    int ox = static_cast<int>(line.rest), oy = static_cast<int>(image.rest);
    std::int64_t n = image.value;
    Vector<float, Lanes> sum{};
    CONVNET_UNROLL_BY(4)
    for (std::int64_t output = begin; output < end; ++output) {
      const int y = rows.origin(oy) + ty * rows.dilation, x = columns.origin(ox) + tx * columns.dilation;
      if (y >= 0 && y < src.h && x >= 0 && x < src.w) {
        const Vector<float, Lanes> values = images[src.index(n, vector.rest, y, x)];
        const Vector<float, Lanes> gradients = diff_dst[output * src.c + vector.rest];
        CONVNET_UNROLL
        for (int lane = 0; lane < Lanes; ++lane) sum.lane[lane] += values.lane[lane] * gradients.lane[lane];
      }
      if (++ox < ow) continue;
      ox = 0;
      if (++oy < oh) continue;
      oy = 0;
      ++n;
    }
    float* const of_piece = sums + tap.value * src.c * Lanes * taps;
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane)
      of_piece[(vector.rest * Lanes + lane) * taps + tap.rest] = sum.lane[lane];
  }
};

/// Calls f(stored, lanes) with a value as `type` is stored and the maps that are moved together.
template <class F>
void with_type_and_lanes(DataType type, std::int64_t maps, const F& f) {
  with_stored_type(type, [&](auto stored) {
    constexpr int kTogether = kLoadLanes<decltype(stored)>;
    if (maps % kTogether == 0)
      f(stored, std::integral_constant<int, kTogether>{});
    else
      f(stored, std::integral_constant<int, 1>{});
  });
}

template <class T>
void transpose_filters(Stream stream, const ConvGeometry& g, bool flip, const std::byte* src,
                       std::byte* dst) {
  for_each(stream, element_count(g.weights()),
           TransposeFilters<T>{g.c, static_cast<int>(g.filter.area()), flip, Divisor(g.c),
                               reinterpret_cast<const T*>(src), reinterpret_cast<T*>(dst)});
}

/// An epilogue says what Convolve does with the sums.
struct Epilogue {
  const std::byte* bias = nullptr;  ///< of the type of the images
  bool accumulate = false, relu = false;
};

/// dst = the convolution of src with the filters, which are flipped if `flip`.
void convolve(Stream stream, DataType type, const ConvGeometry& g, const std::byte* src,
              const std::byte* weights, bool flip, const Epilogue& epilogue, std::byte* dst,
              std::byte* workspace) {
  with_type_and_lanes(type, g.c, [&](auto stored, auto lanes) {
    using T = decltype(stored);
    using Body = Convolve<T, lanes()>;
    transpose_filters<T>(stream, g, flip, weights, workspace);
    const View images(g.n, g.c / lanes(), g.h, g.w, true);
    const View strips(g.n, images.c, g.oh, (g.ow + Body::kStrip - 1) / Body::kStrip, true);
    using Given = Numbers<T, lanes()>;
    const auto given = [](const std::byte* memory) { return Given(const_cast<std::byte*>(memory)); };
    for_each(stream, strips.size(),
             Body{images, strips, static_cast<int>(g.ow), Windows(g.rows()), Windows(g.columns()), given(src),
                  given(workspace), Given(dst), given(epilogue.bias), epilogue.accumulate, epilogue.relu});
  });
}

/// Returns the geometry of the convolution of the gradient of the outputs, with flipped filters, that makes
/// the gradient of the images of a convolution of stride 1.
ConvGeometry backward(const ConvGeometry& g) {
  ConvGeometry back = g;
  back.h = g.oh, back.w = g.ow, back.oh = g.h, back.ow = g.w;
  back.pad = {(g.filter.y - 1) * g.dilation.y - g.pad.y, (g.filter.x - 1) * g.dilation.x - g.pad.x};
  return back;
}

void sum_holders(Stream stream, DataType type, const ConvGeometry& g, std::byte* diff_dst,
                 const std::byte* weights, std::byte* diff_src, std::byte* workspace) {
  with_type_and_lanes(type, g.c, [&](auto stored, auto lanes) {
    using T = decltype(stored);
    transpose_filters<T>(stream, g, false, weights, workspace);
    const View images(g.n, g.c / lanes(), g.h, g.w, true);
    using Given = Numbers<T, lanes()>;
    for_each(
        stream, images.size(),
        SumHolders<T, lanes()>{images, static_cast<int>(g.oh), static_cast<int>(g.ow), Windows(g.rows()),
                               Windows(g.columns()), Given(diff_dst), Given(workspace), Given(diff_src)});
  });
}

/// An operation of these kernels. Its workspace is not more than the form's.
class DepthwiseOp : public KernelOp {
 public:
  DepthwiseOp(const OpForm& form, std::int64_t workspace_bytes, Kernel kernel)
      : KernelOp(form, std::move(kernel)) {
    workspace_bytes_ = workspace_bytes;
    algorithm_ = "depthwise:own";
  }
};

}  // namespace

Prepared prepare_depthwise(const ConvForward& op, const OpForm& form) {
  const DataType type = form.args[0].type;
  return std::make_shared<DepthwiseOp>(
      form, depthwise_filter_bytes(op.g, type),
      [op, type](Stream stream, std::span<std::byte* const> p, std::byte* workspace) {
        convolve(stream, type, op.g, p[0], p[1], false, {op.bias ? p[2] : nullptr, op.accumulate, op.relu},
                 p.back(), workspace);
      });
}

Prepared prepare_depthwise(const ConvBackwardData& op, const OpForm& form) {
  const DataType type = form.args[2].type;
  return std::make_shared<DepthwiseOp>(
      form, depthwise_filter_bytes(op.g, type),
      [g = op.g, type](Stream stream, std::span<std::byte* const> p, std::byte* workspace) {
        if (g.stride == Sides(1))
          convolve(stream, type, backward(g), p[0], p[1], true, {}, p[2], workspace);
        else
          sum_holders(stream, type, g, p[0], p[1], p[2], workspace);
      });
}

Prepared prepare_depthwise(const ConvBackwardWeights& op, const OpForm& form) {
  const DataType type = form.args[0].type;
  const ConvGeometry& g = op.g;
  const DepthwisePieces pieces(g, type);
  const std::int64_t weights = element_count(g.weights()), rows = g.n * g.oh * g.ow;
  const SumRows sum_pieces(pieces.count, weights);
  Areas areas;
  const std::int64_t sums_area = areas.add_floats(pieces.count * weights);
  const std::int64_t sum_pieces_area = areas.add(sum_rows_bytes(pieces.count, weights));
  const std::int64_t bias_area = areas.add(op.bias ? sum_rows_bytes(rows, g.k) : 0);
  const DataType gradient = form.args[2].type;
  const bool rounds = gradient != DataType::f32;
  const std::int64_t total_area = areas.add_floats(rounds ? weights : 0);
  return std::make_shared<DepthwiseOp>(
      form, areas.bytes(), [=](Stream stream, std::span<std::byte* const> p, std::byte* workspace) {
        std::byte* const sums = workspace + sums_area;
        with_type_and_lanes(type, g.c, [&](auto stored, auto lanes) {
          using Given = Numbers<decltype(stored), lanes()>;
          const View images(g.n, g.c / lanes(), g.h, g.w, true);
          for_each(stream, pieces.count * g.filter.area() * images.c,
                   SumTaps<decltype(stored), lanes()>{
                       images, static_cast<int>(g.oh), static_cast<int>(g.ow), Windows(g.rows()),
                       Windows(g.columns()), rows, pieces.size, Divisor(images.c), Divisor(g.filter.area()),
                       Given(p[0]), Given(p[1]), as_floats(sums)});
        });
        std::byte* const total = rounds ? workspace + total_area : p[2];
        sum_pieces.run(stream, DataType::f32, sums, workspace + sum_pieces_area, as_floats(total));
        if (rounds) round_sums(stream, weights, total, gradient, p[2]);
        if (op.bias) bias_gradient(stream, rows, g.k, type, p[1], workspace + bias_area, as_floats(p[3]));
      });
}

}  // namespace convnet::cuda
