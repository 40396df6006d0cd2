// Batch normalisation, bound by memory: every operation reads its tensors once.
#include <type_traits>

#include "kernels/batch_norm_math.h"
#include "kernels/cuda/activations.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {
namespace {

/// A thread sums `runs` runs of `count` values, or vectors of values. There is at least one.
struct Part {
  std::int64_t start, count, stride, runs, run_stride;
};

/// Finds the parts. Those of a channel lie beside each other in the workspace.
class Cut : public CutSizes {
 public:
  explicit Cut(const View& view) : CutSizes(view), by_lanes_(lanes), by_groups_(channels / together) {}

  CONVNET_HD std::int64_t parts_of_channel() const { return chunks * lanes; }
  CONVNET_HD std::int64_t images_of(std::int64_t chunk) const {
    const std::int64_t left = images - chunk * chunk_images;
    return left < chunk_images ? left : chunk_images;
  }
  CONVNET_HD std::int64_t pixels_of(std::int64_t lane) const { return (pixels - lane + lanes - 1) / lanes; }

  /// A thread works on the part of this chunk and lane, for `together` channels.
  struct Place {
    std::int64_t chunk, channel, lane;  ///< channel: the first one of those together
  };
  CONVNET_HD Place place(std::int64_t thread) const {
    const Quotient row = by_lanes_.divide(static_cast<std::uint32_t>(thread));
    const Quotient chunk = by_groups_.divide(static_cast<std::uint32_t>(row.value));
    return {chunk.value, chunk.rest * together, row.rest};
  }
  /// Returns the part in vectors of `Width` values, which are `together`.
  template <int Width>
  CONVNET_HD Part part(const Place& at) const {
    const std::int64_t image = channels * pixels;
    const std::int64_t start = at.chunk * chunk_images * image + at.channel * pixels + at.lane;
    if (pixels == 1) return {start / Width, images_of(at.chunk), image / Width, 1, 0};
    return {start, pixels_of(at.lane), lanes, images_of(at.chunk), image};
  }
  /// Stores the sums of a thread, a number for each of its channels, among those of all parts.
  template <int Width>
  CONVNET_DEVICE void store(const Place& at, const float (&sums)[Width], float* parts) const {
    CONVNET_UNROLL
    for (int k = 0; k < Width; ++k) parts[index(at.channel + k, at.chunk * lanes + at.lane)] = sums[k];
  }
  /// Returns the index of a channel's k-th part.
  CONVNET_HD std::int64_t index(std::int64_t channel, std::int64_t k) const {
    return channel * parts_of_channel() + k;
  }
  CONVNET_HD std::int64_t values(std::int64_t k) const {
    const Quotient chunk = by_lanes_.divide(static_cast<std::uint32_t>(k));
    return images_of(chunk.value) * pixels_of(chunk.rest);
  }

 private:
  Divisor by_lanes_, by_groups_;
};

template <int Width>
struct Sums {
  float a[Width] = {}, b[Width] = {};
};

/// Sums over the vectors of a part: add(index, sums) adds one. Four independent sums keep four reads in
/// flight.
template <int Width, class Add>
CONVNET_DEVICE Sums<Width> reduce(const Part& part, const Add& add) {
  Sums<Width> s0, s1, s2, s3;
  for (std::int64_t run = 0; run < part.runs; ++run) {
    std::int64_t at = part.start + run * part.run_stride, k = 0;
    for (; k + 4 <= part.count; k += 4, at += 4 * part.stride) {
      add(at, s0);
      add(at + part.stride, s1);
      add(at + 2 * part.stride, s2);
      add(at + 3 * part.stride, s3);
    }
    for (; k < part.count; ++k, at += part.stride) add(at, s0);
  }
  CONVNET_UNROLL
  for (int k = 0; k < Width; ++k) {
    s0.a[k] = (s0.a[k] + s1.a[k]) + (s2.a[k] + s3.a[k]);
    s0.b[k] = (s0.b[k] + s1.b[k]) + (s2.b[k] + s3.b[k]);
  }
  return s0;
}

/// Computes for every part the sums of x - pivot and its square. The pivot is the mean of the first values,
/// near enough to that of all for the squares to keep their digits.
template <int Width, class T>
struct PartMoments {
  Cut cut;
  Numbers<T, Width> src;
  float *pivots, *sums, *squares;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const Cut::Place at_part = cut.place(i);
    const Part part = cut.part<Width>(at_part);
    const std::int64_t first = part.count < 8 ? part.count : 8;
    Vector<float, Width> pivot{};
    for (std::int64_t k = 0; k < first; ++k) {
      const Vector<float, Width> x = src[part.start + k * part.stride];
      CONVNET_UNROLL
      for (int lane = 0; lane < Width; ++lane) pivot.lane[lane] += x.lane[lane];
    }
    CONVNET_UNROLL
    for (int lane = 0; lane < Width; ++lane) pivot.lane[lane] /= static_cast<float>(first);
    const Sums<Width> total = reduce<Width>(part, [this, pivot](std::int64_t at, Sums<Width>& s) {
      const Vector<float, Width> x = src[at];
      CONVNET_UNROLL
      for (int lane = 0; lane < Width; ++lane) {
        const float d = x.lane[lane] - pivot.lane[lane];
        s.a[lane] += d;
        s.b[lane] += d * d;
      }
    });
    cut.store(at_part, pivot.lane, pivots);
    cut.store(at_part, total.a, sums);
    cut.store(at_part, total.b, squares);
  }
};

// The loops over a channel's parts are unrolled, so that several reads are in flight at once.

/// A channel's moments from those of its parts. All counts are known, so that the mean comes first and the
/// squares are taken about it: the same as merging parts one after the other, which would be a long chain.
struct ChannelMoments {
  Cut cut;
  const float *pivots, *sums, *squares;
  float *mean, *variance;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t channel) const {
    const std::int64_t values = cut.images * cut.pixels;
    double sum = 0;
    CONVNET_UNROLL_BY(4)
    for (std::int64_t k = team.rank(); k < cut.parts_of_channel(); k += team.size()) {
      const std::int64_t i = cut.index(channel, k);
      sum +=
          static_cast<double>(cut.values(k)) * static_cast<double>(pivots[i]) + static_cast<double>(sums[i]);
    }
    sum = team.sum(sum);
    const double center = values == 0 ? 0 : sum / static_cast<double>(values);
    double square = 0;
    CONVNET_UNROLL_BY(4)
    for (std::int64_t k = team.rank(); k < cut.parts_of_channel(); k += team.size()) {
      const std::int64_t i = cut.index(channel, k);
      const double shift = static_cast<double>(pivots[i]) - center;
      square += static_cast<double>(squares[i]) + 2 * shift * static_cast<double>(sums[i]) +
                static_cast<double>(cut.values(k)) * shift * shift;
    }
    square = team.sum(square);
    if (team.rank() != 0) return;
    const double v = values == 0 ? 1 : square / static_cast<double>(values);
    mean[channel] = static_cast<float>(center);
    variance[channel] = static_cast<float>(v < 0 ? 0.0 : v);  // rounding; keeps NaN
  }
};

/// Computes for every part the sums of dy and of dy * (x - mean). Scale and shift are those of the layer if
/// it has a relu above it, else null.
template <int Width, class T>
struct PartGradients {
  Cut cut;
  Numbers<T, Width> src, diff_dst;
  const float *mean, *variance, *scale, *shift;
  float epsilon;
  float *dy, *dy_x;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const Cut::Place at_part = cut.place(i);
    const bool relu = scale != nullptr;
    Vector<float, Width> center, slope{}, start{};
    CONVNET_UNROLL
    for (int lane = 0; lane < Width; ++lane) {
      const std::int64_t c = at_part.channel + lane;
      center.lane[lane] = mean[c];
      if (!relu) continue;
      slope.lane[lane] = batch_norm_slope(scale[c], variance[c], epsilon);
      start.lane[lane] = shift[c];
    }
    const Sums<Width> total =
        reduce<Width>(cut.part<Width>(at_part), [=, this](std::int64_t at, Sums<Width>& s) {
          const Vector<float, Width> x = src[at], diff = diff_dst[at];
          CONVNET_UNROLL
          for (int lane = 0; lane < Width; ++lane) {
            const float from_center = x.lane[lane] - center.lane[lane];
            const bool passes = !relu || from_center * slope.lane[lane] + start.lane[lane] > 0;
            const float d = passes ? diff.lane[lane] : 0;
            s.a[lane] += d;
            s.b[lane] += d * from_center;
          }
        });
    cut.store(at_part, total.a, dy);
    cut.store(at_part, total.b, dy_x);
  }
};

struct ChannelGradients {
  Cut cut;
  const float *dy, *dy_x, *variance;
  float epsilon;
  float *diff_scale, *diff_shift;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t channel) const {
    double sum = 0, sum_x = 0;
    CONVNET_UNROLL_BY(4)
    for (std::int64_t k = team.rank(); k < cut.parts_of_channel(); k += team.size()) {
      const std::int64_t i = cut.index(channel, k);
      sum += static_cast<double>(dy[i]);
      sum_x += static_cast<double>(dy_x[i]);
    }
    sum = team.sum(sum);
    sum_x = team.sum(sum_x);
    if (team.rank() != 0) return;
    diff_scale[channel] = static_cast<float>(sum_x * inverse_deviation(variance[channel], epsilon));
    diff_shift[channel] = static_cast<float>(sum);
  }
};

/// Element k of vector i is of channel first(i) + k * Step.
template <int Width, int Step>
struct Channels {
  static constexpr int kWidth = Width;
  View view;
  CONVNET_HD std::int64_t first(std::int64_t i) const { return view.place(i * Width).c; }
  /// Returns the parameters of the elements' channels. The array begins at a multiple of the bytes of a
  /// vector of floats.
  CONVNET_DEVICE Vector<float, Width> parameters(const float* of_channels, std::int64_t c) const {
    if constexpr (Step == 1) {
      return *reinterpret_cast<const Vector<float, Width>*>(of_channels + c);
    } else {
      Vector<float, Width> same;
      CONVNET_UNROLL
      for (int k = 0; k < Width; ++k) same.lane[k] = of_channels[c];
      return same;
    }
  }
};

/// Calls launch(width, stored) for the channels that a thread works on, as a constant; `stored` is a value as
/// `type` is stored.
template <class Launch>
void with_parts(const Cut& cut, DataType type, const Launch& launch) {
  with_stored_type(type, [&](auto stored) {
    if (cut.together == kLanes)
      launch(std::integral_constant<int, kLanes>{}, stored);
    else
      launch(std::integral_constant<int, 1>{}, stored);
  });
}

/// Returns the tensor args[index] that a batch norm adds to its result if `sum`, else null.
std::byte* addend_of(bool sum, std::span<std::byte* const> args, std::size_t index) {
  return sum ? args[index] : nullptr;
}

/// Calls launch(channels, stored) for vectors that have all elements of one channel, or of different ones;
/// `stored` is a value as `type` is stored.
template <class Launch>
void with_vectors(const View& view, DataType type, const Launch& launch) {
  with_stored_type(type, [&](auto stored) {
    constexpr int kTogether = kLoadLanes<decltype(stored)>;
    const std::int64_t inner = view.last ? view.c : view.spatial();
    const auto launch_vectors = [&](auto lanes) {
      if (view.last)
        launch(Channels<lanes(), 1>{view}, stored);
      else
        launch(Channels<lanes(), 0>{view}, stored);
    };
    if (inner % kTogether == 0)
      launch_vectors(std::integral_constant<int, kTogether>{});
    else if (inner % kLanes == 0)
      launch_vectors(std::integral_constant<int, kLanes>{});
    else
      launch(Channels<1, 0>{view}, stored);
  });
}

template <class C, class T>
struct Normalise {
  static constexpr int kWidth = C::kWidth;
  C channels;
  bool relu;
  Numbers<T, kWidth> src;
  const float *mean, *slope, *shift;
  Numbers<T, kWidth> addend;  ///< may be null; is added before the relu
  Numbers<T, kWidth> dst;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    Vector<float, kWidth> x = src[i], more{};
    if (addend.memory != nullptr) more = addend[i];
    const std::int64_t c = channels.first(i);
    const Vector<float, kWidth> m = channels.parameters(mean, c), a = channels.parameters(slope, c),
                                b = channels.parameters(shift, c);
    CONVNET_UNROLL for (int k = 0; k < kWidth; ++k) {
      const float y = (x.lane[k] - m.lane[k]) * a.lane[k] + b.lane[k] + more.lane[k];
      x.lane[k] = relu ? ReluFunctor{}.forward(y) : y;
    }
    dst.set(i, x);
  }
};

template <class C, class T>
struct NormaliseBackward {
  static constexpr int kWidth = C::kWidth;
  C channels;
  Numbers<T, kWidth> src, diff_dst;
  const float *mean, *slope, *offset, *drag, *shift;  ///< shift: of the layer below a relu, else null
  Numbers<T, kWidth> addend;                          ///< may be null
  Numbers<T, kWidth> diff_src;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const Vector<float, kWidth> x = src[i];
    Vector<float, kWidth> d = diff_dst[i], more{};
    if (addend.memory != nullptr) more = addend[i];
    const std::int64_t c = channels.first(i);
    const Vector<float, kWidth> m = channels.parameters(mean, c), a = channels.parameters(slope, c),
                                b = channels.parameters(offset, c), e = channels.parameters(drag, c);
    if (shift != nullptr) {
      const Vector<float, kWidth> s = channels.parameters(shift, c);
      CONVNET_UNROLL for (int k = 0; k < kWidth; ++k) {
        const float y = (x.lane[k] - m.lane[k]) * a.lane[k] + s.lane[k];
        d.lane[k] = y > 0 ? d.lane[k] : 0;
      }
    }
    CONVNET_UNROLL for (int k = 0; k < kWidth; ++k) d.lane[k] =
        a.lane[k] * d.lane[k] + (b.lane[k] + e.lane[k] * (x.lane[k] - m.lane[k])) + more.lane[k];
    diff_src.set(i, d);
  }
};

/// Pointers that travel with the launch.
struct MergedParts {
  const float *mean[kMostMoments], *variance[kMostMoments];
  double values[kMostMoments];
  int count = 0;

  void add(const std::byte* means, const std::byte* variances, std::int64_t values_of_part) {
    mean[count] = reinterpret_cast<const float*>(means);
    variance[count] = reinterpret_cast<const float*>(variances);
    values[count++] = static_cast<double>(values_of_part);
  }
};
static_assert(sizeof(Moments<double>) == kMomentsBytes);

}  // namespace

template <>
Prepared prepare(const BatchNormMoments&, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  const Cut cut(channels_view(tensor));
  return std::make_shared<KernelOp>(
      form, [cut, type = tensor.type](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        float* pivots = as_floats(workspace);
        float *sums = pivots + cut.size(), *squares = sums + cut.size();
        with_parts(cut, type, [&](auto width, auto stored) {
          constexpr int kWidth = width();
          using T = decltype(stored);
          for_each(stream, cut.threads(),
                   PartMoments<kWidth, T>{cut, Numbers<T, kWidth>(args[0]), pivots, sums, squares});
        });
        for_teams(stream, cut.channels,
                  ChannelMoments{cut, pivots, sums, squares, as_floats(args[1]), as_floats(args[2])});
      });
}

template <>
Prepared prepare(const BatchNormMerge& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [op](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const std::size_t count = op.values.size();
        float *mean = as_floats(args[2 * count]), *variance = as_floats(args[2 * count + 1]);
        auto* between = reinterpret_cast<Moments<double>*>(workspace);
        for (std::size_t begin = 0; begin < count; begin += kMostMoments) {
          const std::size_t end = std::min<std::size_t>(begin + kMostMoments, count);
          MergedParts parts;
          for (std::size_t i = begin; i < end; ++i) parts.add(args[2 * i], args[2 * i + 1], op.values[i]);
          const bool goes_on = begin > 0, last = end == count;
          for_each(stream, op.channels, [=] CONVNET_DEVICE(std::int64_t c) {
            Moments<double> all;
            if (goes_on) all = between[c];
            for (int i = 0; i < parts.count; ++i) {
              const double values = parts.values[i];
              all.merge({values, static_cast<double>(parts.mean[i][c]),
                         static_cast<double>(parts.variance[i][c]) * values});
            }
            if (!last) {
              between[c] = all;
              return;
            }
            mean[c] = static_cast<float>(all.mean);
            variance[c] = static_cast<float>(all.count == 0 ? 1 : all.squares / all.count);
          });
        }
      });
}

template <>
Prepared prepare(const BatchNormForward& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  const View view = channels_view(tensor);
  return std::make_shared<KernelOp>(
      form, [view, type = tensor.type, epsilon = op.epsilon, relu = op.relu, sum = op.sum](
                Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const float *mean = as_floats(args[1]), *variance = as_floats(args[2]), *scale = as_floats(args[3]),
                    *shift = as_floats(args[4]);
        float* slope = as_floats(workspace);
        for_each(stream, view.c, [=] CONVNET_DEVICE(std::int64_t c) {
          slope[c] = batch_norm_slope(scale[c], variance[c], epsilon);
        });
        with_vectors(view, type, [&](auto channels, auto stored) {
          using Kernel = Normalise<decltype(channels), decltype(stored)>;
          using Values = Numbers<decltype(stored), Kernel::kWidth>;
          for_each(stream, view.size() / Kernel::kWidth,
                   Kernel{channels, relu, Values(args[0]), mean, slope, shift,
                          Values(addend_of(sum, args, 5)), Values(args.back())});
        });
      });
}

template <>
Prepared prepare(const BatchNormTrack& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
    if (op.values < 2) return;
    const float *mean = as_floats(args[0]), *variance = as_floats(args[1]);
    float *running_mean = as_floats(args[2]), *running_variance = as_floats(args[3]);
    const auto m = static_cast<double>(op.values);
    const auto unbiased = static_cast<float>(m / (m - 1));
    const float factor = op.factor;
    for_each(stream, op.channels, [=] CONVNET_DEVICE(std::int64_t c) {
      running_mean[c] = (1 - factor) * running_mean[c] + factor * mean[c];
      running_variance[c] = (1 - factor) * running_variance[c] + factor * (variance[c] * unbiased);
    });
  });
}

template <>
Prepared prepare(const BatchNormBackwardWeights& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  const Cut cut(channels_view(tensor));
  return std::make_shared<KernelOp>(form, [cut, type = tensor.type, epsilon = op.epsilon, relu = op.relu](
                                              Stream stream, std::span<std::byte* const> args,
                                              std::byte* workspace) {
    float *dy = as_floats(workspace), *dy_x = dy + cut.size();
    const float *mean = as_floats(args[2]), *variance = as_floats(args[3]),
                *scale = relu ? as_floats(args[4]) : nullptr, *shift = relu ? as_floats(args[5]) : nullptr;
    with_parts(cut, type, [&](auto width, auto stored) {
      constexpr int kWidth = width();
      using Values = Numbers<decltype(stored), kWidth>;
      for_each(stream, cut.threads(),
               PartGradients<kWidth, decltype(stored)>{cut, Values(args[0]), Values(args[1]), mean, variance,
                                                       scale, shift, epsilon, dy, dy_x});
    });
    for_teams(stream, cut.channels,
              ChannelGradients{cut, dy, dy_x, variance, epsilon, as_floats(args[relu ? 6 : 4]),
                               as_floats(args[relu ? 7 : 5])});
  });
}

template <>
Prepared prepare(const BatchNormBackwardData& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  const View view = channels_view(tensor);
  const auto values = static_cast<double>(op.values > 1 ? op.values : 1);
  return std::make_shared<KernelOp>(
      form, [view, type = tensor.type, values, epsilon = op.epsilon, relu = op.relu, sum = op.sum](
                Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const float *mean = as_floats(args[2]), *variance = as_floats(args[3]), *scale = as_floats(args[4]),
                    *diff_scale = as_floats(args[5]), *diff_shift = as_floats(args[6]),
                    *shift = relu ? as_floats(args[7]) : nullptr;
        float* slope = as_floats(workspace);
        float *offset = slope + view.c, *drag = offset + view.c;
        for_each(stream, view.c, [=] CONVNET_DEVICE(std::int64_t c) {
          const BatchNormGradient g =
              batch_norm_gradient(scale[c], variance[c], epsilon, diff_scale[c], diff_shift[c], values);
          slope[c] = g.slope;
          offset[c] = g.offset;
          drag[c] = g.drag;
        });
        with_vectors(view, type, [&](auto channels, auto stored) {
          using Kernel = NormaliseBackward<decltype(channels), decltype(stored)>;
          using Values = Numbers<decltype(stored), Kernel::kWidth>;
          for_each(stream, view.size() / Kernel::kWidth,
                   Kernel{channels, Values(args[0]), Values(args[1]), mean, slope, offset, drag, shift,
                          Values(addend_of(sum, args, args.size() - 2)), Values(args.back())});
        });
      });
}

}  // namespace convnet::cuda
