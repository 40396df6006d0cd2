// Neurons, scaling, sums and copies: flat over the memory, whatever its layout.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/cuda/flat.h"
#include "kernels/cuda/ranges.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {
namespace {

// These are classes because nvcc allows no device lambdas in generic lambdas.
template <class Functor>
struct Forward {
  Functor f;
  CONVNET_DEVICE float operator()(float x) const { return f.forward(x); }
};
template <class Functor>
struct Backward {
  Functor f;
  CONVNET_DEVICE float operator()(float saved, float diff_dst) const { return f.backward(saved, diff_dst); }
};
struct Multiply {
  float factor;
  CONVNET_DEVICE float operator()(float x) const { return x * factor; }
};
struct Add {
  CONVNET_DEVICE float operator()(float x, float sum) const { return sum + x; }
};

/// The runs that one launch copies.
struct Runs {
  void add(const float* from, float* to, BFloat16* also_to, std::int64_t floats) {
    src[count] = from;
    rounded[count] = also_to;
    dst[count++] = to;
    ranges.add(floats);
  }
  CONVNET_DEVICE void copy(std::int64_t element) const {
    const Ranges::Place at = ranges.find(element);
    const float value = src[at.range][at.index];
    dst[at.range][at.index] = value;
    if (rounded[at.range] != nullptr) rounded[at.range][at.index] = to_bf16(value);
  }

  Ranges ranges;
  const float* src[Ranges::kMost];
  float* dst[Ranges::kMost];
  BFloat16* rounded[Ranges::kMost];  ///< null for runs that are not rounded
  int count = 0;
};

/// The runs that one launch sums. They are its parameters, which have room for kMostGradients sources.
struct Sums {
  struct Run {
    float* dst;
    bool adds;  ///< whether the sum continues that of an earlier launch
    int first_source, end_source;
  };

  /// Returns the number of sources that another run may have.
  int room() const { return ranges.full() ? 0 : static_cast<int>(kMostGradients) - source_count; }
  void add(float* dst, bool adds, std::span<std::byte* const> from, std::int64_t floats) {
    runs[run_count++] = {dst, adds, source_count, source_count + static_cast<int>(from.size())};
    for (std::byte* const source : from) sources[source_count++] = as_floats(source);
    ranges.add(floats);
  }
  CONVNET_DEVICE void sum(std::int64_t element) const {
    const Ranges::Place at = ranges.find(element);
    const Run& run = runs[at.range];
    int k = run.first_source;
    float total = run.adds ? run.dst[at.index] : sources[k++][at.index];
    for (; k < run.end_source; ++k) total += sources[k][at.index];
    run.dst[at.index] = total;
  }

  Ranges ranges;
  Run runs[Ranges::kMost];
  const float* sources[kMostGradients];  ///< sources of all runs
  int run_count = 0, source_count = 0;
};
void launch(Stream stream, const Sums& sums) {
  for_each(stream, sums.ranges.total(), [sums] CONVNET_DEVICE(std::int64_t i) { sums.sum(i); });
}

/// Copies elements from one layout and type to another.
template <class From, class To>
struct Relay {
  View from, to;
  const From* src;
  To* dst;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place p = to.place(i);
    const From v = src[from.index(p.n, p.c, p.s)];
    if constexpr (std::is_same_v<From, To>)
      dst[i] = v;
    else
      dst[i] = stored_as<To>(to_float(v));
  }
};
template <class From, class To>
void relay(Stream stream, const View& from, const View& to, std::span<std::byte* const> args) {
  // Tensors of one channel or one pixel are the same in both layouts.
  if constexpr (!std::is_same_v<From, To>)
    if (from.last == to.last || to.c == 1 || to.spatial() == 1)
      return flat_unary<From, To>(stream, to.size(), args, Forward<IdentFunctor>{});
  for_each(stream, to.size(),
           Relay<From, To>{from, to, reinterpret_cast<const From*>(args[0]), reinterpret_cast<To*>(args[1])});
}

}  // namespace

template <>
Prepared prepare(const NeuronForward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [f = op.f, type = form.args[0].type, count = element_count(op.dims)](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          visit_neuron(f, [&](auto functor) {
            flat_unary<T, T>(stream, count, args, Forward<decltype(functor)>{functor});
          });
        });
      });
}

template <>
Prepared prepare(const NeuronBackward& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [f = op.f, type = form.args[0].type, count = element_count(op.dims)](
                Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          visit_neuron(f, [&](auto functor) {
            flat_binary<decltype(stored)>(stream, count, args, Backward<decltype(functor)>{functor});
          });
        });
      });
}

template <>
Prepared prepare(const Scale& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [factor = op.factor, count = element_count(op.dims)](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    flat_unary<float, float>(stream, count, args, Multiply{factor});
  });
}

template <>
Prepared prepare(const Accumulate& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [type = form.args[0].type, count = element_count(op.dims)](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    with_stored_type(type, [&](auto stored) { flat_binary<decltype(stored)>(stream, count, args, Add{}); });
  });
}

template <>
Prepared prepare(const CopyRuns& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [all = op.runs](Stream stream, std::span<std::byte* const> args, std::byte*) {
        std::size_t rounded = 2 * all.size();
        for (std::size_t run = 0; run < all.size();) {
          Runs runs;
          for (; run < all.size() && !runs.ranges.full(); ++run) {
            auto* also_to = all[run].rounds ? reinterpret_cast<BFloat16*>(args[rounded++]) : nullptr;
            runs.add(as_floats(args[run]), as_floats(args[all.size() + run]), also_to, all[run].count);
          }
          for_each(stream, runs.ranges.total(), [runs] CONVNET_DEVICE(std::int64_t i) { runs.copy(i); });
        }
      });
}

template <>
Prepared prepare(const SumRuns& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(
      form, [runs = op.runs](Stream stream, std::span<std::byte* const> args, std::byte*) {
        Sums sums;
        for (const SumRuns::Run& run : runs) {
          // A run of more sources than fit goes on in the next launch, where its sum so far comes first.
          for (int summed = 0; summed < run.sources;) {
            if (sums.room() == 0) launch(stream, std::exchange(sums, {}));
            const int more = std::min(sums.room(), run.sources - summed);
            sums.add(as_floats(args[0]), summed > 0,
                     args.subspan(1 + static_cast<std::size_t>(summed), static_cast<std::size_t>(more)),
                     run.count);
            summed += more;
          }
          args = args.subspan(1 + static_cast<std::size_t>(run.sources));
        }
        launch(stream, sums);
      });
}

template <>
Prepared prepare(const FillZero& op, const OpForm& form, const Context&) {
  return std::make_shared<KernelOp>(form, [bytes = op.what.bytes()](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    std::byte* memory = args[0];
    // Arguments are aligned to kArgumentAlignment. Most of them consist of whole words of four bytes.
    auto* words = reinterpret_cast<std::uint32_t*>(memory);
    for_each(stream, bytes / 4, [=] CONVNET_DEVICE(std::int64_t i) { words[i] = 0; });
    const std::int64_t done = bytes / 4 * 4;
    for_each(stream, bytes - done, [=] CONVNET_DEVICE(std::int64_t i) { memory[done + i] = std::byte{0}; });
  });
}

template <>
Prepared prepare(const Reorder& op, const OpForm& form, const Context&) {
  const View from = view_of(op.from), to = view_of(op.to);
  const DataType source = op.from.type;
  const bool converts = source != op.to.type;
  return std::make_shared<KernelOp>(
      form, [=, size = size_of(source)](Stream stream, std::span<std::byte* const> args, std::byte*) {
        if (converts && source == DataType::f32) return relay<float, BFloat16>(stream, from, to, args);
        if (converts) return relay<BFloat16, float>(stream, from, to, args);
        if (size == 1) return relay<std::uint8_t, std::uint8_t>(stream, from, to, args);
        if (size == 2) return relay<std::uint16_t, std::uint16_t>(stream, from, to, args);
        // Values of four bytes; of eight there are only costs, which never change their layout.
        relay<std::uint32_t, std::uint32_t>(stream, from, to, args);
      });
}

}  // namespace convnet::cuda
