// Locally-connected layers: for every position one matrix product over the images. The windows are gathered
// as [position][image][channel and tap], so that the products of all positions are one batch. Factors have
// the type of the activations, and results are f32.
#include "kernels/cuda/activations.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/windows.h"
#include "kernels/functors.h"

namespace convnet::cuda {
namespace {

/// Some positions of every image.
struct Positions {
  std::int64_t begin, count;
};

/// The windows of a tensor as rows [position][image]. A row holds the channels one after the other, and of
/// each channel the taps, row by row, as weights do in memory.
struct WindowRows {
  View view;
  Positions positions;
  Windows lines, places;
  Divisor by_images, by_ow, by_taps, by_places;

  WindowRows(const View& view_, const Positions& some, std::int64_t ow, const Windows& lines_,
             const Windows& places_)
      : view(view_),
        positions(some),
        lines(lines_),
        places(places_),
        by_images(view_.n),
        by_ow(ow),
        by_taps(taps()),
        by_places(places_.size) {}
  CONVNET_HD std::int64_t taps() const { return static_cast<std::int64_t>(lines.size) * places.size; }
  std::int64_t rows() const { return positions.count * view.n; }

  /// The image of a row, and the pixel of its first tap.
  struct Origin {
    std::int64_t image;
    int y, x;
  };
  CONVNET_HD Origin origin(std::int64_t row) const {
    const Quotient at = by_images.divide_index(row);
    const Quotient line = by_ow.divide_index(positions.begin + at.value);
    return {at.rest, lines.origin(static_cast<int>(line.value)), places.origin(static_cast<int>(line.rest))};
  }
  template <class T>
  CONVNET_DEVICE T element(const T* tensor, const Origin& from, std::int64_t channel, int tap) const {
    const Quotient at = by_places.divide(static_cast<std::uint32_t>(tap));
    const std::int64_t y = from.y + at.value * lines.dilation, x = from.x + at.rest * places.dilation;
    const bool inside = y >= 0 && y < view.h && x >= 0 && x < view.w;
    return inside ? tensor[view.index(from.image, channel, y, x)] : T{};
  }
};

/// Copies the windows, a thread for each element. Neighbouring threads read neighbouring pixels, or, of
/// windows with one tap, neighbouring channels.
template <class T>
struct GatherElements {
  WindowRows windows;
  Divisor by_width;  ///< elements of a row
  const T* tensor;
  T* rows;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const Quotient row = by_width.divide_index(i);
    const Quotient channel = windows.by_taps.divide_index(row.rest);
    rows[i] =
        windows.element(tensor, windows.origin(row.value), channel.value, static_cast<int>(channel.rest));
  }
};

/// Copies the windows of tensors that lie channels last, a team for each row: it reads neighbouring channels,
/// as many as fit into the memory that it shares, and writes neighbouring taps.
template <class T>
struct GatherRows {
  static constexpr int kShared = 4096;  ///< most elements at a time
  WindowRows windows;
  Divisor by_channels;
  int channels;  ///< at a time
  const T* tensor;
  T* rows;

  /// Returns the number of channels that fit; 0: none does.
  static std::int64_t fitting(const WindowRows& windows) {
    return std::min(windows.view.c, kShared / (windows.taps() | 1));
  }
  CONVNET_DEVICE void operator()(const Team& team, std::int64_t row) const {
    T* const shared = team.shared<T, kShared>();
    const WindowRows::Origin from = windows.origin(row);
    const int taps = static_cast<int>(windows.taps());
    const int pitch = taps | 1;  // odd: the taps of neighbouring channels are in different banks
    T* to = rows + row * windows.view.c * taps;
    CONVNET_UNROLL_BY(1)
    for (std::int64_t first = 0; first < windows.view.c; first += channels, to += channels * taps) {
      const std::int64_t left = windows.view.c - first;
      const int count = static_cast<int>(left < channels ? left : channels);
      CONVNET_UNROLL_BY(4)
      for (int k = team.rank(); k < channels * taps; k += team.size()) {
        const Quotient tap = by_channels.divide(static_cast<std::uint32_t>(k));
        const int channel = static_cast<int>(tap.rest);
        if (channel < count)
          shared[channel * pitch + tap.value] =
              windows.element(tensor, from, first + channel, static_cast<int>(tap.value));
      }
      team.wait();
      CONVNET_UNROLL_BY(4)
      for (int k = team.rank(); k < count * taps; k += team.size()) {
        const Quotient channel = windows.by_taps.divide(static_cast<std::uint32_t>(k));
        to[k] = shared[channel.value * pitch + channel.rest];
      }
      team.wait();  // the next channels are read into the same memory
    }
  }
};

void gather(Stream stream, const WindowRows& windows, DataType type, const std::byte* tensor,
            std::byte* rows) {
  with_stored_type(type, [&](auto stored) {
    using T = decltype(stored);
    const T* const from = reinterpret_cast<const T*>(tensor);
    T* const to = reinterpret_cast<T*>(rows);
    const std::int64_t fitting = GatherRows<T>::fitting(windows), width = windows.view.c * windows.taps();
    if (windows.view.last && windows.taps() > 1 && fitting > 1)
      for_teams(stream, windows.rows(),
                GatherRows<T>{windows, Divisor(fitting), static_cast<int>(fitting), from, to});
    else
      for_each(stream, windows.rows() * width, GatherElements<T>{windows, Divisor(width), from, to});
  });
}

/// Sums, for every input, the places that gather() copies it to, by increasing position.
template <class T>
struct SumLocalWindows {
  View view;
  Positions positions;
  int oh, ow;
  Windows lines, places;
  Divisor by_channels, by_pixels;
  const float* rows;
  const float* earlier;  ///< sums of earlier positions, which are added; null: there are none
  T* diff_src;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    // Channel by channel, whatever the layout: neighbouring threads read neighbouring parts of the rows.
    const Quotient outer = by_channels.divide_index(i);
    const Quotient image = by_pixels.divide_index(outer.value);
    const View::Place at{image.value, outer.rest, image.rest};
    const Pixel pixel(view, at);
    const Range above = lines.holding(pixel.y, oh), beside = places.holding(pixel.x, ow);
    const std::int64_t taps = static_cast<std::int64_t>(lines.size) * places.size;
    float sum = 0;
    for (int oy = above.begin; oy < above.end; ++oy) {
      const int tap_y = lines.tap(pixel.y, oy);
      if (tap_y < 0) continue;
      for (int ox = beside.begin; ox < beside.end; ++ox) {
        const int tap_x = places.tap(pixel.x, ox);
        if (tap_x < 0) continue;
        const std::int64_t position = oy * ow + ox - positions.begin;
        if (position < 0 || position >= positions.count) continue;
        const int tap = tap_y * places.size + tap_x;
        sum += rows[((position * view.n + at.n) * view.c + at.c) * taps + tap];
      }
    }
    const std::int64_t to = view.index(at.n, at.c, at.s);
    diff_src[to] = stored_as<T>(earlier != nullptr ? earlier[to] + sum : sum);
  }
};

/// Writes results [position][image][channel] to their tensor: dst = [dst +] results [+ bias], then max(0,x)
/// if `relu`.
template <class T>
struct ScatterResults {
  View view;
  Positions positions;
  bool accumulate, relu;
  Divisor by_inner, by_outer;
  const float *results, *bias;
  T* dst;

  ScatterResults(const View& view_, const Positions& some, bool adds, bool applies_relu, const float* from,
                 const float* biases, T* to)
      : view(view_),
        positions(some),
        accumulate(adds),
        relu(applies_relu),
        by_inner(view_.last ? view_.c : some.count),
        by_outer(view_.last ? some.count : view_.c),
        results(from),
        bias(biases),
        dst(to) {}
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    // The threads follow the order of dst's memory.
    const Quotient outer = by_inner.divide_index(i);
    const Quotient image = by_outer.divide_index(outer.value);
    const std::int64_t channel = view.last ? outer.rest : image.rest;
    const std::int64_t position = view.last ? image.rest : outer.rest;
    float v = results[(position * view.n + image.value) * view.c + channel];
    if (bias != nullptr) v += bias[(positions.begin + position) * view.c + channel];
    T& y = dst[view.index(image.value, channel, positions.begin + position)];
    if (accumulate) v += to_float(y);
    y = stored_as<T>(relu ? ReluFunctor{}.forward(v) : v);
  }
};

/// Sums the rows of all images of a position, a thread for each channel.
template <class T>
struct SumImages {
  std::int64_t channels, images;
  const T* rows;
  float* sums;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const Quotient position = divide(i, channels);
    const T* values = rows + position.value * images * channels + position.rest;
    float sum = 0;
    CONVNET_UNROLL_BY(8)
    for (std::int64_t n = 0; n < images; ++n) sum += to_float(values[n * channels]);
    sums[i] = sum;
  }
};

/// The state that all passes share.
struct Local {
  /// `input` and `output` are the layer's, or their gradients.
  Local(const LocalGeometry& geometry, const TensorDesc& input, const TensorDesc& output,
        std::int64_t most_bytes)
      : g(geometry),
        type(input.type),
        in(view_of(input)),
        out(view_of(output)),
        outputs(g.k / g.groups),
        row(g.c / g.groups * g.filter.area()),
        width(row * g.groups),
        chunks(local_chunks(g, most_bytes)) {}
  LocalGeometry g;
  DataType type;  ///< type of the activations and of all factors
  View in, out;
  std::int64_t outputs;     ///< channels of a group
  std::int64_t row, width;  ///< elements of a window: in one group, in all groups
  Chunks chunks;            ///< chunks of positions

  std::int64_t window_floats() const { return chunks.size * g.n * width; }
  std::int64_t output_floats() const { return chunks.size * g.n * g.k; }
  Windows lines() const { return Windows(g.rows()); }
  Windows places() const { return Windows(g.columns()); }
  Positions positions(std::int64_t chunk) const { return {chunks.begin(chunk), chunks.size_of(chunk)}; }
  /// Returns the index of the first weight of a group at a chunk's first position.
  std::int64_t weights_at(std::int64_t chunk, std::int64_t group) const {
    return (chunks.begin(chunk) * g.k + group * outputs) * row;
  }
  /// Returns the address of element `index` of a factor.
  std::byte* factor(std::byte* memory, std::int64_t index) const { return memory + index * size_of(type); }
  /// Returns the alignment in bytes of the parts of groups in windows and results, and of those of groups and
  /// chunks in weights, whichever of the factors and the result are f32.
  std::int64_t alignment() const {
    const std::int64_t of_row = row * size_of(type), of_outputs = outputs * size_of(type);
    if (g.groups > 1) return alignment_of({of_row, of_outputs});
    return alignment_of({chunks.count > 1 ? chunks.size * g.k * of_row : 0});
  }

  void gather_inputs(Stream stream, std::int64_t chunk, const std::byte* src, std::byte* rows) const {
    gather(stream, WindowRows(in, positions(chunk), g.ow, lines(), places()), type, src, rows);
  }
  void gather_outputs(Stream stream, std::int64_t chunk, const std::byte* diff_dst, std::byte* rows) const {
    const Windows pixel(0, 1, 1);
    gather(stream, WindowRows(out, positions(chunk), g.ow, pixel, pixel), type, diff_dst, rows);
  }
  /// Sums the windows of a chunk, a part of the gradient of the input, to `sum`, which begins with the sums
  /// of earlier chunks in `earlier`.
  void sum_windows(Stream stream, std::int64_t chunk, const std::byte* rows, const float* earlier,
                   DataType sum_type, std::byte* sum) const {
    with_stored_type(sum_type, [&](auto stored) {
      using T = decltype(stored);
      for_each(stream, in.size(),
               SumLocalWindows<T>{in, positions(chunk), static_cast<int>(g.oh), static_cast<int>(g.ow),
                                  lines(), places(), Divisor(in.c), Divisor(in.spatial()),
                                  reinterpret_cast<const float*>(rows), earlier, reinterpret_cast<T*>(sum)});
    });
  }
};

}  // namespace

Prepared prepare_in_chunks(const LocalForward& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes) {
  if (op.g.n == 0) return prepare_empty(op, form);
  const Local l(op.g, form.args[0], form.args.back(), most_bytes);
  const LocalGeometry& g = l.g;
  Gemm gemm;
  gemm.trans_b = true;
  gemm.m = g.n, gemm.n = l.outputs, gemm.k = l.row;
  gemm.lda = l.width, gemm.ldb = l.row, gemm.ldc = g.k;
  gemm.a_step = g.n * l.width, gemm.b_step = g.k * l.row, gemm.c_step = g.n * g.k;
  gemm.alignment = l.alignment();
  gemm.factors = l.type;
  const ChunkGemms products(gemm, &Gemm::batch, 1, l.chunks, context);
  Areas areas;
  const std::int64_t windows_area = areas.add_floats(l.window_floats());
  const std::int64_t results_area = areas.add_floats(l.output_floats());
  const std::int64_t product_area = areas.add(products.workspace_bytes());
  return std::make_shared<ProductOp>(
      form, areas.bytes(),
      [=, has_bias = op.bias, accumulate = op.accumulate, relu = op.relu](
          Queue* queue, std::span<std::byte* const> p, std::byte* workspace) {
        const Stream stream = stream_of(queue);
        const float* bias = has_bias ? as_floats(p[2]) : nullptr;
        std::byte* windows = workspace + windows_area;
        float* results = as_floats(workspace + results_area);
        for (std::int64_t i = 0; i < l.chunks.count; ++i) {
          l.gather_inputs(stream, i, p[0], windows);
          for (std::int64_t group = 0; group < l.g.groups; ++group)
            products[i].run(queue, l.factor(windows, group * l.row), l.factor(p[1], l.weights_at(i, group)),
                            reinterpret_cast<std::byte*>(results + group * l.outputs),
                            workspace + product_area);
          const Positions positions = l.positions(i);
          with_stored_type(l.type, [&](auto stored) {
            using T = decltype(stored);
            for_each(stream, l.g.n * l.g.k * positions.count,
                     ScatterResults<T>{l.out, positions, accumulate, relu, results, bias,
                                       reinterpret_cast<T*>(p.back())});
          });
        }
      });
}

Prepared prepare_in_chunks(const LocalBackwardData& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes) {
  if (op.g.n == 0) return prepare_empty(op, form);
  const Local l(op.g, form.args[2], form.args[0], most_bytes);
  const LocalGeometry& g = l.g;
  Gemm gemm;
  gemm.m = g.n, gemm.n = l.row, gemm.k = l.outputs;
  gemm.lda = g.k, gemm.ldb = l.row, gemm.ldc = l.width;
  gemm.a_step = g.n * g.k, gemm.b_step = g.k * l.row, gemm.c_step = g.n * l.width;
  gemm.alignment = l.alignment();
  gemm.factors = l.type;
  const ChunkGemms products(gemm, &Gemm::batch, 1, l.chunks, context);
  Areas areas;
  const std::int64_t windows_area = areas.add_floats(l.window_floats());
  const std::int64_t diffs_area = areas.add_floats(l.output_floats());
  const bool rounds = l.type != DataType::f32 && l.chunks.count > 1;
  const std::int64_t sums_area = areas.add_floats(rounds ? l.in.size() : 0);
  const std::int64_t product_area = areas.add(products.workspace_bytes());
  return std::make_shared<ProductOp>(
      form, areas.bytes(), [=](Queue* queue, std::span<std::byte* const> p, std::byte* workspace) {
        const Stream stream = stream_of(queue);
        float* windows = as_floats(workspace + windows_area);
        std::byte* diffs = workspace + diffs_area;
        // The sums of all chunks but the last stay f32.
        std::byte* const sums = rounds ? workspace + sums_area : p[2];
        for (std::int64_t i = 0; i < l.chunks.count; ++i) {
          l.gather_outputs(stream, i, p[0], diffs);
          for (std::int64_t group = 0; group < l.g.groups; ++group)
            products[i].run(queue, l.factor(diffs, group * l.outputs), l.factor(p[1], l.weights_at(i, group)),
                            reinterpret_cast<std::byte*>(windows + group * l.row), workspace + product_area);
          const bool last = i + 1 == l.chunks.count;
          l.sum_windows(stream, i, workspace + windows_area, i > 0 ? as_floats(sums) : nullptr,
                        last ? l.type : DataType::f32, last ? p[2] : sums);
        }
      });
}

Prepared prepare_in_chunks(const LocalBackwardWeights& op, const OpForm& form, const Context& context,
                           std::int64_t most_bytes) {
  if (op.g.n == 0) return prepare_empty(op, form);
  const Local l(op.g, form.args[0], form.args[1], most_bytes);
  const LocalGeometry& g = l.g;
  Gemm gemm;
  gemm.trans_a = true;
  gemm.m = l.outputs, gemm.n = l.row, gemm.k = g.n;
  gemm.lda = g.k, gemm.ldb = l.width, gemm.ldc = l.row;
  gemm.a_step = g.n * g.k, gemm.b_step = g.n * l.width, gemm.c_step = g.k * l.row;
  gemm.alignment = l.alignment();
  gemm.factors = l.type;
  const ChunkGemms products(gemm, &Gemm::batch, 1, l.chunks, context);
  Areas areas;
  const std::int64_t windows_area = areas.add_floats(l.window_floats());
  const std::int64_t diffs_area = areas.add_floats(l.output_floats());
  const std::int64_t product_area = areas.add(products.workspace_bytes());
  return std::make_shared<ProductOp>(
      form, areas.bytes(),
      [=, has_bias = op.bias](Queue* queue, std::span<std::byte* const> p, std::byte* workspace) {
        const Stream stream = stream_of(queue);
        std::byte* windows = workspace + windows_area;
        std::byte* diffs = workspace + diffs_area;
        float* diff_bias = has_bias ? as_floats(p[3]) : nullptr;
        for (std::int64_t i = 0; i < l.chunks.count; ++i) {
          l.gather_inputs(stream, i, p[0], windows);
          l.gather_outputs(stream, i, p[1], diffs);
          for (std::int64_t group = 0; group < l.g.groups; ++group)
            products[i].run(queue, l.factor(diffs, group * l.outputs), l.factor(windows, group * l.row),
                            reinterpret_cast<std::byte*>(as_floats(p[2]) + l.weights_at(i, group)),
                            workspace + product_area);
          if (diff_bias == nullptr) continue;
          with_stored_type(l.type, [&](auto stored) {
            using T = decltype(stored);
            for_each(stream, l.chunks.size_of(i) * l.g.k,
                     SumImages<T>{l.g.k, l.g.n, reinterpret_cast<const T*>(diffs),
                                  diff_bias + l.chunks.begin(i) * l.g.k});
          });
        }
      });
}

template <>
Prepared prepare(const LocalForward& op, const OpForm& form, const Context& context) {
  return prepare_in_chunks(op, form, context, kMostColumnBytes);
}
template <>
Prepared prepare(const LocalBackwardData& op, const OpForm& form, const Context& context) {
  return prepare_in_chunks(op, form, context, kMostColumnBytes);
}
template <>
Prepared prepare(const LocalBackwardWeights& op, const OpForm& form, const Context& context) {
  return prepare_in_chunks(op, form, context, kMostColumnBytes);
}

}  // namespace convnet::cuda
