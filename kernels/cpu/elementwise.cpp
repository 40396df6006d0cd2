// Neurons, scaling, accumulation and zeroing: flat loops over the memory, whatever its layout.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/own_kernel.h"
#include "kernels/functors.h"

namespace convnet::cpu::own {
namespace {

constexpr std::int64_t kBlockOfSums = 1024;  ///< floats, few enough for the first-level cache

bool keeps_zero(const Neuron& f) {
  bool keeps = false;
  visit_neuron(f, [&](auto functor) { keeps = functor.forward(0.0F) == 0.0F; });
  return keeps;
}

/// A neuron's functor as functions of numbers, and of vectors of numbers if it takes them.
template <class Functor>
struct Forward {
  Functor functor;

  template <class V>
  [[gnu::always_inline]] auto operator()(V x) const -> decltype(functor.forward(x)) {
    return functor.forward(x);
  }
};
template <class Functor>
struct Backward {
  Functor functor;

  template <class V>
  [[gnu::always_inline]] auto operator()(V saved, V dy) const -> decltype(functor.backward(saved, dy)) {
    return functor.backward(saved, dy);
  }
};

using Floats = Lanes<float, 16>;

/// Returns numbers of memory with f32 or bf16; see load_lanes().
template <class T, class Count>
[[gnu::always_inline]] inline Floats loaded(const T* p, Count count) {
  Floats numbers;
  load_lanes(p, count, numbers);
  return numbers;
}

/// Computes dst[i] = f(src[i]...) for all numbers of the tensors, of which src has as many as f has
/// arguments.
template <class T, class F, class... Source>
void for_numbers(std::int64_t count, const F& f, T* dst, const Source*... src) {
  for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_invocable_v<F, std::conditional_t<true, Floats::Part, Source>...>) {
      constexpr std::int64_t kNumbers = Floats::kPart * Floats::kParts;
      const auto some = [=](std::int64_t i, auto numbers) __attribute__((always_inline)) {
        store_lanes(dst + i, numbers, Floats::each(f, loaded(src + i, numbers)...));
      };
      std::int64_t i = begin;
      for (; i + kNumbers <= end; i += kNumbers) some(i, AllLanes<kNumbers>{});
      if (i < end) some(i, end - i);
    } else {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) dst[i] = stored_as<T>(f(to_float(src[i])...));
    }
  });
}

}  // namespace

Prepared prepare(const NeuronForward& op, const LayoutHints& hints) {
  TensorDesc tensor = hinted_activation(op.dims, hints, 0);
  if (gives_probabilities(op.f)) tensor = with_type(tensor, DataType::f32);
  // A function that maps 0 to something else writes into padding, which is zeroed again afterwards.
  std::optional<ActivationView> padded;
  if (!tensor.plain() && !keeps_zero(op.f)) {
    padded = activation_view(tensor);
    if (!padded) tensor.layout = nullptr;
  }
  return std::make_shared<KernelOp>(argument_tensors(op, tensor),
                                    [f = op.f, type = tensor.type, count = stored_numbers(tensor),
                                     padded](std::span<std::byte* const> args) {
                                      with_stored(type, [&]<class T>(T) {
                                        const T* src = as<T>(args[0]);
                                        T* dst = as<T>(args[1]);
                                        visit_neuron(f, [&]<class Functor>(Functor functor) {
                                          for_numbers(count, Forward<Functor>{functor}, dst, src);
                                        });
                                        if (!padded) return;
                                        for (std::int64_t n = 0; n < padded->n; ++n)
                                          zero_padding(*padded, n, 0, padded->spatial, dst);
                                      });
                                    });
}

Prepared prepare(const NeuronBackward& op, const LayoutHints& hints) {
  const TensorDesc tensor = hinted_activation(op.dims, hints, 0);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor),
      [f = op.f, type = tensor.type, count = stored_numbers(tensor)](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          const T *saved = as<T>(args[0]), *diff_dst = as<T>(args[1]);
          T* diff_src = as<T>(args[2]);
          // Padding needs no care: a zero gradient times any slope is zero.
          visit_neuron(f, [&]<class Functor>(Functor functor) {
            for_numbers(count, Backward<Functor>{functor}, diff_src, saved, diff_dst);
          });
        });
      });
}

Prepared prepare(const Scale& op, const LayoutHints& hints) {
  const TensorDesc tensor = hinted_activation(op.dims, hints, 0);
  return std::make_shared<KernelOp>(argument_tensors(op, tensor),
                                    [factor = op.factor, type = tensor.type,
                                     count = stored_numbers(tensor)](std::span<std::byte* const> args) {
                                      with_stored(type, [&]<class T>(T) {
                                        const T* src = as<T>(args[0]);
                                        T* dst = as<T>(args[1]);
                                        for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
                                          for (std::int64_t i = begin; i < end; ++i)
                                            dst[i] = stored_as<T>(to_float(src[i]) * factor);
                                        });
                                      });
                                    });
}

Prepared prepare(const Accumulate& op, const LayoutHints& hints) {
  const TensorDesc tensor = hinted_activation(op.dims, hints, 1);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor),
      [type = tensor.type, count = stored_numbers(tensor)](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          const T* src = as<T>(args[0]);
          T* dst = as<T>(args[1]);
          for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
            add_scaled(src + begin, 1, end - begin, dst + begin);
          });
        });
      });
}

Prepared prepare(const CopyRuns& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [runs = op.runs](std::span<std::byte* const> args) {
    std::size_t rounded = 2 * runs.size();
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const float* src = as_floats(args[i]);
      float* dst = as_floats(args[runs.size() + i]);
      BFloat16* also_to = runs[i].rounds ? as<BFloat16>(args[rounded++]) : nullptr;
      for_pieces(runs[i].count, [=](std::int64_t begin, std::int64_t end) {
        std::copy_n(src + begin, end - begin, dst + begin);
        if (also_to != nullptr) round_to_bf16(src + begin, end - begin, also_to + begin);
      });
    }
  });
}

Prepared prepare(const SumRuns& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(argument_tensors(op), [runs = op.runs](std::span<std::byte* const> args) {
    for (const SumRuns::Run& run : runs) {
      const auto sources = args.subspan(1, static_cast<std::size_t>(run.sources));
      float* dst = as_floats(args[0]);
      for_pieces(run.count, [=](std::int64_t begin, std::int64_t end) {
        // The destination may be a source, so a block's sums are complete before they are written.
        std::array<float, kBlockOfSums> sums;
        for (std::int64_t i = begin; i < end; i += kBlockOfSums) {
          const std::int64_t count = std::min(kBlockOfSums, end - i);
          std::copy_n(as_floats(sources[0]) + i, count, sums.data());
          for (std::byte* const source : sources.subspan(1))
            add_scaled(as_floats(source) + i, 1, count, sums.data());
          std::copy_n(sums.data(), count, dst + i);
        }
      });
      args = args.subspan(1 + sources.size());
    }
  });
}

Prepared prepare(const FillZero& op, const LayoutHints&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op, op.what.layout), [bytes = op.what.bytes()](std::span<std::byte* const> args) {
        for_pieces(bytes, [=](std::int64_t begin, std::int64_t end) {
          std::memset(args[0] + begin, 0, static_cast<std::size_t>(end - begin));
        });
      });
}

}  // namespace convnet::cpu::own
