// Batch normalisation, bound by memory: every operation reads its tensors once.
#include <array>
#include <stdexcept>
#include <type_traits>

#include "kernels/batch_norm_arguments.h"
#include "kernels/batch_norm_math.h"
#include "kernels/cpu/moments.h"
#include "kernels/cpu/own_kernel.h"
#include "kernels/cpu/strips.h"
#include "kernels/functors.h"

namespace convnet::cpu::own {
namespace {

/// Takes the moments of the lanes of a strip. The squares are taken about the mean of the first rows and then
/// corrected. That loses five bits at worst: n values, k of them with a mean `offset` away from that of all,
/// have a variance of at least offset^2 * k / n.
template <class T>
void strip_moments(const Strip& s, const T* src, Moments<Doubles>& m) {
  Strip start = s;
  start.rows = std::min<std::int64_t>(s.rows, 8);
  Sums values;
  reduce_rows(
      start,
      [=](std::int64_t at, auto lanes, Sums& sums) {
        Floats x;
        load_lanes(src + at, lanes, x);
        sums.a += x;
      },
      values);
  const auto rows = static_cast<float>(s.rows);
  const Floats mean = values.a / static_cast<float>(start.rows);
  Sums differences;
  reduce_rows(
      s,
      [=](std::int64_t at, auto lanes, Sums& sums) {
        Floats x;
        load_lanes(src + at, lanes, x);
        x -= mean;
        sums.a += x;
        sums.b += x * x;
      },
      differences);
  const Doubles offset = to_doubles(differences.a) / static_cast<double>(rows);
  m.mean = to_doubles(mean) + offset;
  m.squares = to_doubles(differences.b) - offset * offset * static_cast<double>(rows);
  m.count = static_cast<double>(s.rows);
}

/// The moments of the lanes of a block: those of whole strips, and those of strips with `rest_lanes` lanes.
struct BlockMoments {
  Moments<Doubles> whole, rest;
  std::int64_t rest_lanes = 0;

  template <class T>
  void add(const Strip& strip, const T* src) {
    Moments<Doubles> part;
    strip_moments(strip, src, part);
    if (strip.lanes == kLanes) {
      whole.merge(part);
    } else {
      rest.merge(part);
      rest_lanes = strip.lanes;
    }
  }
};

/// The moments of a block's channels, in the first lanes of the result.
using ChannelMoments = std::array<Moments<double>, kLanes>;
/// Merges the lanes j, j + period, ..., which are the same channel.
ChannelMoments channel_moments(const BlockMoments& block, std::int64_t period) {
  Moments<Doubles> whole = block.whole;
  const Moments<Doubles>& rest = block.rest;
  for (std::int64_t half = kLanes / 2; half >= period; half /= 2) {
    for (std::int64_t j = 0; j < half; ++j) {
      const double delta = whole.mean[j + half] - whole.mean[j];
      whole.mean.set(j, whole.mean[j] + delta / 2);
      whole.squares.set(j, whole.squares[j] + whole.squares[j + half] + delta * delta * (whole.count / 2));
    }
    whole.count *= 2;
  }
  ChannelMoments channels;
  for (std::int64_t j = 0; j < period; ++j)
    channels[static_cast<std::size_t>(j)] = {whole.count, whole.mean[j], whole.squares[j]};
  for (std::int64_t j = 0; j < block.rest_lanes; ++j)
    channels[static_cast<std::size_t>(j % period)].merge({rest.count, rest.mean[j], rest.squares[j]});
  return channels;
}

/// Writes mean and variance of all channels.
template <class T>
void moments(const ActivationView& view, const T* src, float* mean, float* variance) {
  const Cutting cut(view, kReducedImages);
  const std::int64_t channels = cut.channels();
  std::vector<double> means(static_cast<std::size_t>(cut.groups() * channels));
  std::vector<double> squares(means.size());
  cut.for_ranges([&](std::int64_t group, std::int64_t first, std::int64_t end) {
    std::vector<BlockMoments> blocks(static_cast<std::size_t>(end - first));
    cut.for_strips(group, first, end, [&](std::int64_t block, const Strip& strip) {
      blocks[static_cast<std::size_t>(block - first)].add(strip, src);
    });
    for (std::int64_t block = first; block < end; ++block) {
      const ChannelMoments all =
          channel_moments(blocks[static_cast<std::size_t>(block - first)], cut.block_channels());
      for (std::int64_t j = 0; j < cut.block_channels(); ++j) {
        const auto at = static_cast<std::size_t>(group * channels + cut.channel(block, j));
        means[at] = all[static_cast<std::size_t>(j)].mean;
        squares[at] = all[static_cast<std::size_t>(j)].squares;
      }
    }
  });
  merge_moments(
      cut.groups(), channels, [&](std::int64_t group) { return cut.values(group); }, means.data(),
      squares.data());
  write_moments(view.c, view.n * view.spatial, means.data(), squares.data(), mean, variance);
}

/// Returns `count` values of one parameter, filled up with zeros to `channels` values.
std::vector<float> padded(const float* values, std::int64_t count, std::int64_t channels) {
  std::vector<float> all(values, values + count);
  all.resize(static_cast<std::size_t>(channels));
  return all;
}

/// The functor of no neuron.
struct NoNeuron {};
/// Calls f with the functor of the neuron, or with NoNeuron.
template <class F>
void with_functor(const Neuron& neuron, const F& f) {
  if (neuron.is_ident()) return f(NoNeuron{});
  visit_quick_neuron(neuron, f);
}

/// Returns the gradient times the slope of a quick neuron at x.
template <class Functor>
[[gnu::always_inline]] inline Floats below_neuron(const Functor& neuron, const Floats& x,
                                                  const Floats& gradient) {
  if constexpr (std::is_same_v<Functor, NoNeuron>) {
    return gradient;
  } else {
    return Floats::each(
        [neuron](const Floats::Part& value, Floats::Part dy) {
#if defined(__AVX512F__)
          // Otherwise compilers load the gradient under the mask of the comparison, which waits for x and is
          // a third slower.
          asm("" : "+v"(dy));
#endif
          return neuron.backward(value, dy);
        },
        x, gradient);
  }
}

/// The normalisation of the channels of a block.
struct Normalisation {
  Floats mean, slope, shift;

  [[gnu::always_inline]] Floats operator()(const Floats& x) const { return (x - mean) * slope + shift; }
};

/// Multiplies gradients by the slopes of the neuron above a normalisation. (Lambdas that do as much are not
/// inlined, and pass vectors through memory.)
template <class Functor>
struct NeuronSlopes {
  Functor neuron;
  Normalisation normalised;

  [[gnu::always_inline]] Floats operator()(const Floats& x, const Floats& dy) const {
    return below_neuron(neuron, normalised(x), dy);
  }
};

/// The normalisations of all blocks. The parameters of padding are zeros, so that padding stays zero.
class Normalisations {
 public:
  Normalisations(const Cutting& cut, std::int64_t channels, const float* mean, const float* variance,
                 const float* scale, const float* shift, float epsilon)
      : cut_(cut),
        means_(padded(mean, channels, cut.channels())),
        slopes_(means_.size()),
        shifts_(padded(shift, channels, cut.channels())) {
    for (std::int64_t c = 0; c < channels; ++c)
      slopes_[static_cast<std::size_t>(c)] = batch_norm_slope(scale[c], variance[c], epsilon);
  }
  Normalisation of(std::int64_t block) const {
    Normalisation n;
    cut_.spread(means_, block, n.mean);
    cut_.spread(slopes_, block, n.slope);
    cut_.spread(shifts_, block, n.shift);
    return n;
  }

 private:
  Cutting cut_;
  std::vector<float> means_, slopes_, shifts_;
};

/// The sums of dy and of dy * (x - mean) over all values of each channel.
struct GradientSums {
  std::vector<double> dy, dy_x;
};
/// The tensors of BatchNormBackwardWeights. The last three may be null.
template <class T>
struct GradientTensors {
  const T *src, *diff_dst, *addend, *output;
  T* dy;
};
/// Computes the sums; gradient_of(block)(x, dy) multiplies dy by the slope of a neuron. If there is memory
/// for it, dy is written before that.
template <class T, class Gradient, class Writes>
GradientSums gradient_sums(const Cutting& cut, const GradientTensors<T>& t, const std::vector<float>& mean,
                           const Gradient& gradient_of, Writes /*writes*/) {
  const std::int64_t channels = cut.channels();
  GradientSums parts;
  parts.dy.resize(static_cast<std::size_t>(std::max<std::int64_t>(cut.groups(), 1) * channels));
  parts.dy_x.resize(parts.dy.size());
  struct LaneSums {
    Doubles dy, dy_x;
  };
  cut.for_ranges([&](std::int64_t group, std::int64_t first, std::int64_t end) {
    std::vector<LaneSums> blocks(static_cast<std::size_t>(end - first));
    cut.for_strips(group, first, end, [&](std::int64_t block, const Strip& strip) {
      Floats center;
      cut.spread(mean, block, center);
      const auto gradient = gradient_of(block);
      Sums total;
      reduce_rows(
          strip,
          [=](std::int64_t at, auto lanes, Sums& sums) __attribute__((always_inline)) {
            Floats x, d;
            load_lanes(t.src + at, lanes, x);
            load_lanes(t.diff_dst + at, lanes, d);
            if constexpr (Writes()) {
              if (t.addend != nullptr) add_floats(t.addend + at, lanes, d);
              if (t.output != nullptr) {
                Floats y;
                load_lanes(t.output + at, lanes, y);
                d = below_neuron(ReluFunctor{}, y, d);
              }
            }
            if constexpr (Writes()) {
              // The sums are those of what is written, which BatchNormBackwardData multiplies by the slope.
              store_lanes(t.dy + at, lanes, d);
              load_lanes(t.dy + at, lanes, d);
            }
            d = gradient(x, d);
            sums.a += d;
            sums.b += d * (x - center);
          },
          total);
      LaneSums& sums = blocks[static_cast<std::size_t>(block - first)];
      sums.dy += to_doubles(total.a);
      sums.dy_x += to_doubles(total.b);
    });
    for (std::int64_t block = first; block < end; ++block) {
      const LaneSums& sums = blocks[static_cast<std::size_t>(block - first)];
      for (std::int64_t j = 0; j < kLanes; ++j) {
        const auto at = static_cast<std::size_t>(group * channels + cut.channel(block, j));
        parts.dy[at] += sums.dy[j];
        parts.dy_x[at] += sums.dy_x[j];
      }
    }
  });
  for (std::int64_t i = channels; i < cut.groups() * channels; ++i) {
    parts.dy[static_cast<std::size_t>(i % channels)] += parts.dy[static_cast<std::size_t>(i)];
    parts.dy_x[static_cast<std::size_t>(i % channels)] += parts.dy_x[static_cast<std::size_t>(i)];
  }
  return parts;
}

/// Calls f with the constant true or false.
template <class F>
void with_constant(bool value, const F& f) {
  if (value)
    f(std::true_type{});
  else
    f(std::false_type{});
}

/// Does BatchNormTrack, whose arguments are the first four.
void track(std::int64_t channels, std::int64_t values, float factor, std::span<std::byte* const> args) {
  for (std::int64_t c = 0; c < channels; ++c)
    track_batch_norm(as_floats(args[0])[c], as_floats(args[1])[c], static_cast<double>(values), factor,
                     as_floats(args[2])[c], as_floats(args[3])[c]);
}

/// Returns the tensor of the images of `op`, with their layout and type.
template <class Op>
TensorDesc images_of(const Op& op, const LayoutHints& hints) {
  if (op.dims.size() != 2 && op.dims.size() != 4)
    throw std::logic_error("bnorm: " + to_string(op.dims) + " is not (N,C[,H,W])");
  TensorDesc tensor = walkable(op.dims, hints);
  if (kLanes % activation_view(tensor)->block != 0) tensor.layout = nullptr;
  return tensor;
}

}  // namespace

Prepared prepare(const BatchNormMoments& op, const LayoutHints& hints) {
  const TensorDesc tensor = images_of(op, hints);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor),
      [view = *activation_view(tensor), type = tensor.type, op](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          moments(view, as<const T>(args[0]), as_floats(args[1]), as_floats(args[2]));
        });
        if (op.track) track(op.dims[1], op.values(), op.factor, args.subspan(1));
      });
}

Prepared prepare(const BatchNormMerge& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    const std::size_t parts = op.values.size();
    for (std::int64_t c = 0; c < op.channels; ++c) {
      Moments<double> all;
      for (std::size_t i = 0; i < parts; ++i) {
        const auto count = static_cast<double>(op.values[i]);
        const auto variance = static_cast<double>(as_floats(args[2 * i + 1])[c]);
        all.merge({count, static_cast<double>(as_floats(args[2 * i])[c]), variance * count});
      }
      as_floats(args[2 * parts])[c] = static_cast<float>(all.mean);
      as_floats(args[2 * parts + 1])[c] = static_cast<float>(all.count == 0 ? 1 : all.squares / all.count);
    }
    if (op.track) track(op.channels, op.all_values(), op.factor, args.subspan(2 * parts));
  });
}

Prepared prepare(const BatchNormForward& op, const LayoutHints& hints) {
  const TensorDesc tensor = images_of(op, hints);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor),
      [view = *activation_view(tensor), type = tensor.type, epsilon = op.epsilon, neuron = op.neuron,
       sum = op.sum](std::span<std::byte* const> args) {
        const Cutting cut(view, 1);
        const Normalisations all(cut, view.c, as_floats(args[1]), as_floats(args[2]), as_floats(args[3]),
                                 as_floats(args[4]), epsilon);
        const auto normalise = [&]<class T>(const T* src, const T* addend, T* dst, auto functor, auto adds) {
          cut.for_pieces([&](std::int64_t group, std::int64_t block) {
            const Normalisation normalised = all.of(block);
            cut.for_strips(group, block, block + 1, [&](std::int64_t, const Strip& strip) {
              for_rows(strip, [=](std::int64_t at, auto lanes) {
                Floats x;
                load_lanes(src + at, lanes, x);
                x = normalised(x);
                if constexpr (adds()) add_floats(addend + at, lanes, x);
                if constexpr (!std::is_same_v<decltype(functor), NoNeuron>)
                  x = Floats::each([=](const Floats::Part& y) { return functor.forward(y); }, x);
                store_lanes(dst + at, lanes, x);
              });
            });
          });
        };
        with_stored(type, [&]<class T>(T) {
          with_functor(neuron, [&](auto functor) {
            with_constant(sum, [&](auto adds) {
              normalise(as<const T>(args[0]), as<const T>(args[5]), as<T>(args.back()), functor, adds);
            });
          });
        });
      });
}

Prepared prepare(const BatchNormTrack& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [op](std::span<std::byte* const> args) {
    track(op.channels, op.values, op.factor, args);
  });
}

Prepared prepare(const BatchNormBackwardWeights& op, const LayoutHints& hints) {
  const TensorDesc tensor = images_of(op, hints);
  return std::make_shared<KernelOp>(argument_tensors(op, tensor), [view = *activation_view(tensor),
                                                                   type = tensor.type,
                                                                   op](std::span<std::byte* const> args) {
    const Cutting cut(view, kReducedImages);
    const float epsilon = op.epsilon;
    const float *mean = as_floats(args[2]), *variance = as_floats(args[3]);
    const GradientSumsArguments more(op, args);
    const auto sum = [&](const auto& gradient_of) {
      GradientSums sums;
      with_stored(type, [&]<class T>(T) {
        const GradientTensors<T> tensors{as<const T>(args[0]), as<const T>(args[1]), as<const T>(more.addend),
                                         as<const T>(more.output), as<T>(args.back())};
        with_constant(op.writes_dy(), [&](auto writes) {
          sums = gradient_sums(cut, tensors, padded(mean, view.c, cut.channels()), gradient_of, writes);
        });
      });
      return sums;
    };
    GradientSums sums;
    with_functor(op.neuron, [&]<class Functor>(Functor functor) {
      if constexpr (std::is_same_v<Functor, NoNeuron>) {
        sums = sum([](std::int64_t) { return [](const Floats&, const Floats& dy) { return dy; }; });
      } else {
        const Normalisations all(cut, view.c, mean, variance, more.scale, more.shift, epsilon);
        sums = sum([&](std::int64_t block) { return NeuronSlopes<Functor>{functor, all.of(block)}; });
      }
    });
    for (std::int64_t c = 0; c < view.c; ++c) {
      const auto at = static_cast<std::size_t>(c);
      more.diff_scale[c] = static_cast<float>(sums.dy_x[at] * inverse_deviation(variance[c], epsilon));
      more.diff_shift[c] = static_cast<float>(sums.dy[at]);
    }
  });
}

Prepared prepare(const BatchNormBackwardData& op, const LayoutHints& hints) {
  const TensorDesc tensor = images_of(op, hints);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor),
      [view = *activation_view(tensor), type = tensor.type, epsilon = op.epsilon, neuron = op.neuron,
       sum = op.sum,
       values = static_cast<double>(std::max<std::int64_t>(op.values, 1))](std::span<std::byte* const> args) {
        const Cutting cut(view, 1);
        const float *mean = as_floats(args[2]), *variance = as_floats(args[3]), *scale = as_floats(args[4]),
                    *diff_scale = as_floats(args[5]), *diff_shift = as_floats(args[6]);
        const std::vector<float> zeros(static_cast<std::size_t>(view.c));
        const Normalisations all(cut, view.c, mean, variance, scale,
                                 neuron.is_ident() ? zeros.data() : as_floats(args[7]), epsilon);
        std::vector<float> offsets(static_cast<std::size_t>(cut.channels())), drags(offsets.size());
        for (std::int64_t c = 0; c < view.c; ++c) {
          const auto at = static_cast<std::size_t>(c);
          const BatchNormGradient g =
              batch_norm_gradient(scale[c], variance[c], epsilon, diff_scale[c], diff_shift[c], values);
          offsets[at] = g.offset;
          drags[at] = g.drag;
        }
        const auto differentiate = [&]<class T>(const T* src, const T* diff_dst, const T* addend, T* diff_src,
                                                auto functor, auto adds) {
          cut.for_pieces([&](std::int64_t group, std::int64_t block) {
            const Normalisation normalised = all.of(block);
            Floats offset, drag;
            cut.spread(offsets, block, offset);
            cut.spread(drags, block, drag);
            cut.for_strips(group, block, block + 1, [&](std::int64_t, const Strip& strip) {
              for_rows(strip, [=](std::int64_t at, auto lanes) {
                Floats x, dy;
                load_lanes(src + at, lanes, x);
                load_lanes(diff_dst + at, lanes, dy);
                dy = below_neuron(functor, normalised(x), dy);
                Floats dx = normalised.slope * dy + (offset + drag * (x - normalised.mean));
                if constexpr (adds()) add_floats(addend + at, lanes, dx);
                store_lanes(diff_src + at, lanes, dx);
              });
            });
          });
        };
        with_stored(type, [&]<class T>(T) {
          const T* const addend = as<const T>(args[args.size() - 2]);
          with_functor(neuron, [&](auto functor) {
            with_constant(sum, [&](auto adds) {
              differentiate(as<const T>(args[0]), as<const T>(args[1]), addend, as<T>(args.back()), functor,
                            adds);
            });
          });
        });
      });
}

}  // namespace convnet::cpu::own
