// Statistics and sums of gradients for batch normalisation. A launch sums parts of the tensors, which it
// reads once, another adds up those of each channel.
#include <type_traits>

#include "kernels/batch_norm_arguments.h"
#include "kernels/batch_norm_math.h"
#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {
namespace {

/// An item sums `runs` runs of `count` vectors.
struct Part {
  std::int64_t start, count, stride, runs, run_stride;
};

/// Finds the parts. What teams computed of a channel's chunks lies beside each other in the workspace.
class Cut : public CutSizes {
 public:
  Cut(const View& view, DataType type)
      : CutSizes(view, type), by_columns_(team_columns), by_teams_(column_teams) {}

  /// The work of an item of a team.
  struct Place {
    std::int64_t chunk, channel;  ///< channel: the first of its column
    int lane;
    bool exists;  ///< teams have more items than work
  };
  CONVNET_HD Place place(std::int64_t team, int item) const {
    const Quotient at = by_columns_.divide(static_cast<std::uint32_t>(item));
    const Quotient of_team = by_teams_.divide(static_cast<std::uint32_t>(team));
    const std::int64_t channel = (of_team.rest * team_columns + at.rest) * together;
    return {of_team.value, channel, static_cast<int>(at.value), at.value < lanes && channel < channels};
  }
  CONVNET_HD std::int64_t images_of(std::int64_t chunk) const {
    const std::int64_t left = images - chunk * chunk_images;
    return left < chunk_images ? left : chunk_images;
  }
  /// Returns what an item sums, in vectors of `Width` values, which are `together`.
  template <int Width>
  CONVNET_HD Part part(const Place& at) const {
    const std::int64_t image = channels * pixels, first = at.chunk * chunk_images;
    // The items of a column take turns: together, a team reads memory in order.
    const auto share = [this, lane = at.lane](std::int64_t all) { return (all - lane + lanes - 1) / lanes; };
    if (pixels == 1)
      return {((first + at.lane) * image + at.channel) / Width, share(images_of(at.chunk)),
              lanes * image / Width, 1, 0};
    return {first * image + at.channel * pixels + at.lane, share(pixels), lanes, images_of(at.chunk), image};
  }
  /// Returns the first values of a column's chunk, at most eight.
  template <int Width>
  CONVNET_HD Part first_values(const Place& at) const {
    const Part part = this->part<Width>({at.chunk, at.channel, 0, true});
    const std::int64_t values = pixels == 1 ? images_of(at.chunk) : pixels;
    return {part.start, values < 8 ? values : 8, pixels == 1 ? channels / Width : 1, 1, 0};
  }
  /// Returns the index of what was computed of a channel's chunk.
  CONVNET_HD std::int64_t index(std::int64_t channel, std::int64_t chunk) const {
    return channel * chunks + chunk;
  }
  CONVNET_HD std::int64_t values(std::int64_t chunk) const { return images_of(chunk) * pixels; }

 private:
  Divisor by_columns_, by_teams_;
};

template <int Width>
struct Sums {
  float a[Width] = {}, b[Width] = {};

  CONVNET_DEVICE void add(const Sums& other) {
    CONVNET_UNROLL
    for (int k = 0; k < Width; ++k) {
      a[k] += other.a[k];
      b[k] += other.b[k];
    }
  }
};

/// Sums over the vectors of a part: add(index, load(index), sums) adds one. Four loads are in flight.
template <int Width, class Load, class Add>
CONVNET_DEVICE Sums<Width> reduce(const Part& part, const Load& load, const Add& add) {
  Sums<Width> even, odd;
  CONVNET_UNROLL_BY(1)
  for (std::int64_t run = 0; run < part.runs; ++run) {
    std::int64_t at = part.start + run * part.run_stride, k = 0;
    CONVNET_UNROLL_BY(1)
    for (; k + 4 <= part.count; k += 4, at += 4 * part.stride) {
      const auto v0 = load(at), v1 = load(at + part.stride), v2 = load(at + 2 * part.stride),
                 v3 = load(at + 3 * part.stride);
      add(at, v0, even);
      add(at + part.stride, v1, odd);
      add(at + 2 * part.stride, v2, even);
      add(at + 3 * part.stride, v3, odd);
    }
    CONVNET_UNROLL_BY(1)
    for (; k < part.count; ++k, at += part.stride) add(at, load(at), even);
  }
  even.add(odd);
  return even;
}

/// Calls sums_of(place) for all items of a team, adds up those of each column, always in the same order, and
/// calls write(channel, chunk, a, b) for the sums of each channel.
template <int Width, class SumsOf, class Write>
CONVNET_DEVICE void sum_columns(const Team& team, const Cut& cut, std::int64_t i, const SumsOf& sums_of,
                                const Write& write) {
  constexpr int kItems = Cut::kItems;
  auto* const all = team.shared<Sums<Width>, kItems>();
  for (int item = team.rank(); item < kItems; item += team.size()) {
    const Cut::Place at = cut.place(i, item);
    all[item] = at.exists ? sums_of(at) : Sums<Width>{};
  }
  team.wait();
  for (int half = kItems / 2; half > 0; half /= 2) {
    if (half >= cut.lanes) continue;
    const int items = (cut.lanes - half < half ? cut.lanes - half : half) * cut.team_columns;
    for (int item = team.rank(); item < items; item += team.size())
      all[item].add(all[item + half * cut.team_columns]);
    team.wait();
  }
  for (int k = team.rank(); k < cut.team_columns * Width; k += team.size()) {
    const int column = k / Width, lane = k % Width;
    const Cut::Place at = cut.place(i, column);
    if (at.exists) write(at.channel + lane, at.chunk, all[column].a[lane], all[column].b[lane]);
  }
  team.wait();  // the next part is written to the same memory
}

/// Computes for every part the sums of x - pivot and its square. The pivot is the mean of the first values,
/// near enough to that of all for the squares to keep their digits.
template <int Width, class T>
struct PartMoments {
  Cut cut;
  Numbers<T, Width> src;
  float *pivots, *sums, *squares;

  CONVNET_DEVICE Vector<float, Width> pivot_of(const Cut::Place& at) const {
    const Part first = cut.first_values<Width>(at);
    Vector<float, Width> pivot{};
    CONVNET_UNROLL_BY(4)
    for (std::int64_t k = 0; k < first.count; ++k) {
      const Vector<float, Width> x = src[first.start + k * first.stride];
      CONVNET_UNROLL
      for (int lane = 0; lane < Width; ++lane) pivot.lane[lane] += x.lane[lane];
    }
    CONVNET_UNROLL
    for (int lane = 0; lane < Width; ++lane) pivot.lane[lane] /= static_cast<float>(first.count);
    return pivot;
  }

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t i) const {
    sum_columns<Width>(
        team, cut, i,
        [this](const Cut::Place& at) {
          const Vector<float, Width> pivot = pivot_of(at);
          if (at.lane == 0) {
            CONVNET_UNROLL
            for (int lane = 0; lane < Width; ++lane)
              pivots[cut.index(at.channel + lane, at.chunk)] = pivot.lane[lane];
          }
          return reduce<Width>(
              cut.part<Width>(at), [this](std::int64_t k) { return src.memory[k]; },
              [pivot](std::int64_t, const Vector<T, Width>& stored, Sums<Width>& s) {
                const Vector<float, Width> x = Numbers<T, Width>::as_floats(stored);
                CONVNET_UNROLL
                for (int lane = 0; lane < Width; ++lane) {
                  const float d = x.lane[lane] - pivot.lane[lane];
                  s.a[lane] += d;
                  s.b[lane] += d * d;
                }
              });
        },
        [this](std::int64_t channel, std::int64_t chunk, float sum, float square) {
          sums[cut.index(channel, chunk)] = sum;
          squares[cut.index(channel, chunk)] = square;
        });
  }
};

/// The running statistics that a kernel moves; null: there are none to be moved.
struct Running {
  float *mean = nullptr, *variance = nullptr;
  float factor = 0;

  CONVNET_DEVICE void track(std::int64_t channel, float batch_mean, float batch_variance,
                            double values) const {
    if (mean != nullptr)
      track_batch_norm(batch_mean, batch_variance, values, factor, mean[channel], variance[channel]);
  }
};

// The loops over a channel's parts are unrolled, so that several reads are in flight at once.

/// A channel's moments from those of its parts. All counts are known, so that the mean comes first and the
/// squares are taken about it: the same as merging parts one after the other, which would be a long chain.
struct ChannelMoments {
  Cut cut;
  const float *pivots, *sums, *squares;
  float *mean, *variance;
  Running running;

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t channel) const {
    const std::int64_t values = cut.images * cut.pixels;
    double sum = 0;
    CONVNET_UNROLL_BY(4)
    for (std::int64_t k = team.rank(); k < cut.chunks; k += team.size()) {
      const std::int64_t i = cut.index(channel, k);
      sum +=
          static_cast<double>(cut.values(k)) * static_cast<double>(pivots[i]) + static_cast<double>(sums[i]);
    }
    sum = team.sum(sum);
    const double center = values == 0 ? 0 : sum / static_cast<double>(values);
    double square = 0;
    CONVNET_UNROLL_BY(4)
    for (std::int64_t k = team.rank(); k < cut.chunks; k += team.size()) {
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
    running.track(channel, mean[channel], variance[channel], static_cast<double>(values));
  }
};

/// Computes for every part the sums of dy and of dy * (x - mean). Scale and shift are those of the layer if
/// it applies a neuron, else null. If Writes, dy is diff_dst + addend, masked by the output of a relu, and
/// is written; addend or output may be null.
template <int Width, class T, bool Writes>
struct PartGradients {
  using Values = Numbers<T, Width>;
  Cut cut;
  Neuron neuron;
  Values src, diff_dst, addend, output, written;
  const float *mean, *variance, *scale, *shift;
  float epsilon;
  float *dy, *dy_x;

  struct Loaded {
    Vector<T, Width> x, diff, more, output;
  };
  CONVNET_DEVICE Loaded load(std::int64_t at) const {
    Loaded loaded;
    loaded.x = src.memory[at];
    loaded.diff = diff_dst.memory[at];
    if constexpr (Writes) {
      loaded.more = addend.memory == nullptr ? Vector<T, Width>{} : addend.memory[at];
      if (output.memory != nullptr) loaded.output = output.memory[at];
    }
    return loaded;
  }

  CONVNET_DEVICE Sums<Width> sums_of(const Cut::Place& at_part) const {
    Vector<float, Width> center, slope{}, start{};
    CONVNET_UNROLL
    for (int lane = 0; lane < Width; ++lane) {
      const std::int64_t c = at_part.channel + lane;
      center.lane[lane] = mean[c];
      if (scale == nullptr) continue;
      slope.lane[lane] = scale[c] * inverse_root(variance[c] + epsilon);
      start.lane[lane] = shift[c];
    }
    return reduce<Width>(
        cut.part<Width>(at_part), [this](std::int64_t at) { return load(at); },
        [=, this](std::int64_t at, const Loaded& loaded, Sums<Width>& s) {
          const Vector<float, Width> x = Values::as_floats(loaded.x);
          Vector<float, Width> d = Values::as_floats(loaded.diff);
          if constexpr (Writes) {
            const Vector<float, Width> more = Values::as_floats(loaded.more);
            CONVNET_UNROLL
            for (int lane = 0; lane < Width; ++lane) d.lane[lane] += more.lane[lane];
            if (output.memory != nullptr) {
              const Vector<float, Width> y = Values::as_floats(loaded.output);
              CONVNET_UNROLL
              for (int lane = 0; lane < Width; ++lane) d.lane[lane] = y.lane[lane] > 0 ? d.lane[lane] : 0;
            }
          }
          if constexpr (Writes) {
            // The sums are those of what is written, which BatchNormBackwardData multiplies by the slope.
            const Vector<T, Width> stored = Values::as_stored(d);
            written.memory[at] = stored;
            d = Values::as_floats(stored);
          }
          Vector<float, Width> from_center;
          CONVNET_UNROLL
          for (int lane = 0; lane < Width; ++lane) {
            from_center.lane[lane] = x.lane[lane] - center.lane[lane];
            const float y = from_center.lane[lane] * slope.lane[lane] + start.lane[lane];
            d.lane[lane] = differentiate(neuron, y, d.lane[lane]);
          }
          CONVNET_UNROLL
          for (int lane = 0; lane < Width; ++lane) {
            s.a[lane] += d.lane[lane];
            s.b[lane] += d.lane[lane] * from_center.lane[lane];
          }
        });
  }

  CONVNET_DEVICE void operator()(const Team& team, std::int64_t i) const {
    sum_columns<Width>(
        team, cut, i, [this](const Cut::Place& at) { return sums_of(at); },
        [this](std::int64_t channel, std::int64_t chunk, float sum, float sum_x) {
          dy[cut.index(channel, chunk)] = sum;
          dy_x[cut.index(channel, chunk)] = sum_x;
        });
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
    for (std::int64_t k = team.rank(); k < cut.chunks; k += team.size()) {
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

/// Calls launch(width, stored) for the channels that a thread works on, as a constant; `stored` is a value as
/// `type` is stored.
template <class Launch>
void with_parts(const Cut& cut, DataType type, const Launch& launch) {
  with_stored_type(type, [&](auto stored) {
    constexpr int kTogether = kLoadLanes<decltype(stored)>;
    if (cut.together == kTogether)
      launch(std::integral_constant<int, kTogether>{}, stored);
    else if (cut.together == kLanes)
      launch(std::integral_constant<int, kLanes>{}, stored);
    else
      launch(std::integral_constant<int, 1>{}, stored);
  });
}

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

/// Returns the running statistics args[index] and the next if `track`.
Running running_of(bool track, float factor, std::span<std::byte* const> args, std::size_t index) {
  return track ? Running{as_floats(args[index]), as_floats(args[index + 1]), factor} : Running{};
}

}  // namespace

template <>
Prepared prepare(const BatchNormMoments& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  const Cut cut(channels_view(tensor), tensor.type);
  return std::make_shared<KernelOp>(
      form, [cut, type = tensor.type, track = op.track, factor = op.factor](
                Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        float* pivots = as_floats(workspace);
        float *sums = pivots + cut.size(), *squares = sums + cut.size();
        with_parts(cut, type, [&](auto width, auto stored) {
          constexpr int kWidth = width();
          using T = decltype(stored);
          for_teams(stream, cut.teams(),
                    PartMoments<kWidth, T>{cut, Numbers<T, kWidth>(args[0]), pivots, sums, squares});
        });
        for_teams(stream, cut.channels,
                  ChannelMoments{cut, pivots, sums, squares, as_floats(args[1]), as_floats(args[2]),
                                 running_of(track, factor, args, 3)});
      });
}

template <>
Prepared prepare(const BatchNormMerge& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [op](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        const std::size_t count = op.values.size();
        float *mean = as_floats(args[2 * count]), *variance = as_floats(args[2 * count + 1]);
        const Running running = running_of(op.track, op.factor, args, 2 * count + 2);
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
            running.track(c, mean[c], variance[c], all.count);
          });
        }
      });
}

template <>
Prepared prepare(const BatchNormTrack& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [op](Stream stream, std::span<std::byte* const> args, std::byte*) {
    const float *mean = as_floats(args[0]), *variance = as_floats(args[1]);
    const Running running = running_of(true, op.factor, args, 2);
    const auto values = static_cast<double>(op.values);
    if (op.values < 2) return;
    for_each(stream, op.channels,
             [=] CONVNET_DEVICE(std::int64_t c) { running.track(c, mean[c], variance[c], values); });
  });
}

template <>
Prepared prepare(const BatchNormBackwardWeights& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  const Cut cut(channels_view(tensor), tensor.type);
  return std::make_shared<KernelOp>(
      form,
      [cut, type = tensor.type, op](Stream stream, std::span<std::byte* const> args, std::byte* workspace) {
        float *dy = as_floats(workspace), *dy_x = dy + cut.size();
        const float *mean = as_floats(args[2]), *variance = as_floats(args[3]);
        const GradientSumsArguments more(op, args);
        with_parts(cut, type, [&](auto width, auto stored) {
          const auto launch = [&](auto writes) {
            using Kernel = PartGradients<width(), decltype(stored), writes()>;
            using Values = typename Kernel::Values;
            for_teams(stream, cut.teams(),
                      Kernel{cut, op.neuron, Values(args[0]), Values(args[1]), Values(more.addend),
                             Values(more.output), Values(args.back()), mean, variance, more.scale, more.shift,
                             op.epsilon, dy, dy_x});
          };
          if (op.writes_dy())
            launch(std::true_type{});
          else
            launch(std::false_type{});
        });
        for_teams(stream, cut.channels,
                  ChannelGradients{cut, dy, dy_x, variance, op.epsilon, more.diff_scale, more.diff_shift});
      });
}

}  // namespace convnet::cuda
