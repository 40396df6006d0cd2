// Batch normalisation and its gradient, bound by memory: each is one launch, which reads its tensors once.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/batch_norm.h"

namespace convnet::cuda {
namespace {

/// The vectors that a thread works on, i, i + step and so on, whose elements have the same channels. Element
/// k of a vector is of channel first(i) + k * Step.
template <int Width, int Step>
struct Channels {
  static constexpr int kWidth = Width;
  /// Number of vectors that are loaded before the first is used.
  static constexpr int kTogether = 4;

  explicit Channels(const View& of) : view(of), vectors(of.size() / Width) {
    constexpr std::int64_t kThreads = 1 << 17, kMost = 8;
    const std::int64_t period = std::max<std::int64_t>(1, of.c * (of.last ? 1 : of.spatial()) / Width);
    const std::int64_t each = std::clamp<std::int64_t>(vectors / kThreads, 1, kMost);
    step = (vectors + each * period - 1) / (each * period) * period;
  }
  View view;
  std::int64_t vectors, step;

  std::int64_t threads() const { return std::min(step, vectors); }
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
  /// Calls work(at, load(at)) for the vectors of thread i.
  template <class Load, class Work>
  CONVNET_DEVICE void for_vectors(std::int64_t i, const Load& load, const Work& work) const {
    CONVNET_UNROLL_BY(1)
    for (std::int64_t at = i; at < vectors; at += kTogether * step) {
      decltype(load(at)) loaded[kTogether];
      CONVNET_UNROLL
      for (int k = 0; k < kTogether; ++k)
        if (at + k * step < vectors) loaded[k] = load(at + k * step);
      CONVNET_UNROLL
      for (int k = 0; k < kTogether; ++k)
        if (at + k * step < vectors) work(at + k * step, loaded[k]);
    }
  }
};

/// Calls launch(channels, stored) for vectors that have all elements of one channel, or of different ones;
/// `stored` is a value as `type` is stored.
template <class Launch>
void with_vectors(const View& view, DataType type, const Launch& launch) {
  with_stored_type(type, [&](auto stored) {
    constexpr int kTogether = kLoadLanes<decltype(stored)>;
    const std::int64_t inner = view.last ? view.c : view.spatial();
    const auto launch_vectors = [&](auto lanes) {
      if (view.last)
        launch(Channels<lanes(), 1>(view), stored);
      else
        launch(Channels<lanes(), 0>(view), stored);
    };
    if (inner % kTogether == 0)
      launch_vectors(std::integral_constant<int, kTogether>{});
    else if (inner % kLanes == 0)
      launch_vectors(std::integral_constant<int, kLanes>{});
    else
      launch(Channels<1, 0>(view), stored);
  });
}

template <class C, class T>
struct Normalise {
  static constexpr int kWidth = C::kWidth;
  using Values = Numbers<T, kWidth>;
  C channels;
  Neuron neuron;
  float epsilon;
  Values src;
  const float *mean, *variance, *scale, *shift;
  Values addend;  ///< may be null; is added before the neuron
  Values dst;

  struct Loaded {
    Vector<T, kWidth> x, more;
  };
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t c = channels.first(i);
    const Vector<float, kWidth> m = channels.parameters(mean, c), b = channels.parameters(shift, c),
                                v = channels.parameters(variance, c);
    Vector<float, kWidth> a = channels.parameters(scale, c);
    CONVNET_UNROLL
    for (int k = 0; k < kWidth; ++k) a.lane[k] *= inverse_root(v.lane[k] + epsilon);
    channels.for_vectors(
        i,
        [this](std::int64_t at) {
          return Loaded{src.memory[at], addend.memory == nullptr ? Vector<T, kWidth>{} : addend.memory[at]};
        },
        [&](std::int64_t at, const Loaded& loaded) {
          Vector<float, kWidth> x = Values::as_floats(loaded.x);
          const Vector<float, kWidth> more = Values::as_floats(loaded.more);
          CONVNET_UNROLL
          for (int k = 0; k < kWidth; ++k) {
            const float y = (x.lane[k] - m.lane[k]) * a.lane[k] + b.lane[k] + more.lane[k];
            x.lane[k] = apply(neuron, y);
          }
          dst.set(at, x);
        });
  }
};

template <class C, class T>
struct NormaliseBackward {
  static constexpr int kWidth = C::kWidth;
  using Values = Numbers<T, kWidth>;
  C channels;
  Neuron neuron;
  float epsilon, per_value;  ///< per_value: 1 / number of values of a channel
  Values src, diff_dst;
  const float *mean, *variance, *scale, *diff_scale, *diff_shift;
  const float* shift;  ///< of the layer below a neuron, else null
  Values addend;       ///< may be null
  Values diff_src;

  struct Loaded {
    Vector<T, kWidth> x, diff, more;
  };
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t c = channels.first(i);
    const Vector<float, kWidth> m = channels.parameters(mean, c);
    // The coefficients of dx = slope * dy + (offset + drag * (x - mean)), as in batch_norm_gradient().
    Vector<float, kWidth> slope = channels.parameters(scale, c), offset = channels.parameters(diff_shift, c),
                          drag = channels.parameters(diff_scale, c), start{};
    const Vector<float, kWidth> v = channels.parameters(variance, c);
    CONVNET_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      const float inverse = inverse_root(v.lane[k] + epsilon);
      slope.lane[k] *= inverse;
      offset.lane[k] *= -slope.lane[k] * per_value;
      drag.lane[k] *= -slope.lane[k] * inverse * per_value;
    }
    if (shift != nullptr) start = channels.parameters(shift, c);
    channels.for_vectors(
        i,
        [this](std::int64_t at) {
          return Loaded{src.memory[at], diff_dst.memory[at],
                        addend.memory == nullptr ? Vector<T, kWidth>{} : addend.memory[at]};
        },
        [&](std::int64_t at, const Loaded& loaded) {
          const Vector<float, kWidth> x = Values::as_floats(loaded.x), more = Values::as_floats(loaded.more);
          Vector<float, kWidth> d = Values::as_floats(loaded.diff);
          CONVNET_UNROLL
          for (int k = 0; k < kWidth; ++k) {
            const float from_center = x.lane[k] - m.lane[k];
            const float y = from_center * slope.lane[k] + start.lane[k];
            const float dy = differentiate(neuron, y, d.lane[k]);
            d.lane[k] = slope.lane[k] * dy + (offset.lane[k] + drag.lane[k] * from_center) + more.lane[k];
          }
          diff_src.set(at, d);
        });
  }
};

}  // namespace

template <>
Prepared prepare(const BatchNormForward& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  const View view = channels_view(tensor);
  return std::make_shared<KernelOp>(
      form, [view, type = tensor.type, epsilon = op.epsilon, neuron = op.neuron, sum = op.sum](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_vectors(view, type, [&](auto channels, auto stored) {
          using Kernel = Normalise<decltype(channels), decltype(stored)>;
          using Values = typename Kernel::Values;
          for_each(stream, channels.threads(),
                   Kernel{channels, neuron, epsilon, Values(args[0]), as_floats(args[1]), as_floats(args[2]),
                          as_floats(args[3]), as_floats(args[4]), Values(argument_if(sum, args, 5)),
                          Values(args.back())});
        });
      });
}

template <>
Prepared prepare(const BatchNormBackwardData& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  const View view = channels_view(tensor);
  const float per_value = 1 / static_cast<float>(op.values > 1 ? op.values : 1);
  return std::make_shared<KernelOp>(
      form, [view, type = tensor.type, per_value, epsilon = op.epsilon, neuron = op.neuron, sum = op.sum](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float* shift = neuron.is_ident() ? nullptr : as_floats(args[7]);
        with_vectors(view, type, [&](auto channels, auto stored) {
          using Kernel = NormaliseBackward<decltype(channels), decltype(stored)>;
          using Values = typename Kernel::Values;
          for_each(stream, channels.threads(),
                   Kernel{channels, neuron, epsilon, per_value, Values(args[0]), Values(args[1]),
                          as_floats(args[2]), as_floats(args[3]), as_floats(args[4]), as_floats(args[5]),
                          as_floats(args[6]), shift, Values(argument_if(sum, args, args.size() - 2)),
                          Values(args.back())});
        });
      });
}

}  // namespace convnet::cuda
