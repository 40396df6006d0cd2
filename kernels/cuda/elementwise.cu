// Neurons, scaling, sums and copies: flat over the memory, whatever its layout.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"

namespace convnet::cuda {
namespace {

// A class and not a lambda: nvcc takes no device lambdas in generic ones.
template <class Functor>
struct ApplyForward {
  Functor f;
  const float* src;
  float* dst;
  CONVNET_DEVICE void operator()(std::int64_t i) const { dst[i] = f.forward(src[i]); }
};
template <class Functor>
struct ApplyBackward {
  Functor f;
  const float *saved, *diff_dst;
  float* diff_src;
  CONVNET_DEVICE void operator()(std::int64_t i) const { diff_src[i] = f.backward(saved[i], diff_dst[i]); }
};

}  // namespace

template <>
Prepared prepare(const NeuronForward& op, const LayoutHints& hints, const Context&) {
  const TensorDesc tensor = hinted_or_preferred(op.dims, hints, 0);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor.layout), [f = op.f, count = element_count(op.dims)](
                                               Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float* src = as_floats(args[0]);
        float* dst = as_floats(args[1]);
        visit_neuron(f, [&](auto functor) {
          for_each(stream, count, ApplyForward<decltype(functor)>{functor, src, dst});
        });
      });
}

template <>
Prepared prepare(const NeuronBackward& op, const LayoutHints& hints, const Context&) {
  const TensorDesc tensor = hinted_or_preferred(op.dims, hints, 0);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor.layout), [f = op.f, count = element_count(op.dims)](
                                               Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float* saved = as_floats(args[0]);
        const float* diff_dst = as_floats(args[1]);
        float* diff_src = as_floats(args[2]);
        visit_neuron(f, [&](auto functor) {
          for_each(stream, count, ApplyBackward<decltype(functor)>{functor, saved, diff_dst, diff_src});
        });
      });
}

template <>
Prepared prepare(const Scale& op, const LayoutHints& hints, const Context&) {
  const TensorDesc tensor = hinted_or_preferred(op.dims, hints, 0);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor.layout), [factor = op.factor, count = element_count(op.dims)](
                                               Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float* src = as_floats(args[0]);
        float* dst = as_floats(args[1]);
        for_each(stream, count, [=] CONVNET_DEVICE(std::int64_t i) { dst[i] = src[i] * factor; });
      });
}

template <>
Prepared prepare(const Accumulate& op, const LayoutHints& hints, const Context&) {
  const TensorDesc tensor = hinted_or_preferred(op.dims, hints, 1);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor.layout),
      [count = element_count(op.dims)](Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float* src = as_floats(args[0]);
        float* dst = as_floats(args[1]);
        for_each(stream, count, [=] CONVNET_DEVICE(std::int64_t i) { dst[i] += src[i]; });
      });
}

template <>
Prepared prepare(const CopyRuns& op, const LayoutHints&, const Context&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op),
      [counts = op.counts](Stream stream, std::span<std::byte* const> args, std::byte*) {
        for (std::size_t run = 0; run < counts.size(); ++run) {
          const float* src = as_floats(args[run]);
          float* dst = as_floats(args[counts.size() + run]);
          for_each(stream, counts[run], [=] CONVNET_DEVICE(std::int64_t i) { dst[i] = src[i]; });
        }
      });
}

template <>
Prepared prepare(const FillZero& op, const LayoutHints&, const Context&) {
  return std::make_shared<KernelOp>(
      argument_tensors(op, op.what.layout),
      [bytes = op.what.bytes()](Stream stream, std::span<std::byte* const> args, std::byte*) {
        std::byte* memory = args[0];
        // Memory of arguments is aligned, and everything but labels comes in words of four bytes.
        auto* words = reinterpret_cast<std::uint32_t*>(memory);
        for_each(stream, bytes / 4, [=] CONVNET_DEVICE(std::int64_t i) { words[i] = 0; });
        const std::int64_t done = bytes / 4 * 4;
        for_each(stream, bytes - done,
                 [=] CONVNET_DEVICE(std::int64_t i) { memory[done + i] = std::byte{0}; });
      });
}

template <>
Prepared prepare(const Reorder& op, const LayoutHints&, const Context&) {
  const View from = view_of(op.from), to = view_of(op.to);
  const std::int64_t size = size_of(op.from.type);
  return std::make_shared<KernelOp>(
      std::vector<TensorDesc>{op.from, op.to},
      [from, to, size](Stream stream, std::span<std::byte* const> args, std::byte*) {
        if (size == 1) {
          const std::byte* src = args[0];
          std::byte* dst = args[1];
          for_each(stream, to.size(), [=] CONVNET_DEVICE(std::int64_t i) {
            const View::Place p = to.place(i);
            dst[i] = src[from.index(p.n, p.c, p.s)];
          });
          return;
        }
        // Values of four bytes; of eight there are only costs, which never change their layout.
        const auto* src = reinterpret_cast<const std::uint32_t*>(args[0]);
        auto* dst = reinterpret_cast<std::uint32_t*>(args[1]);
        for_each(stream, to.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place p = to.place(i);
          dst[i] = src[from.index(p.n, p.c, p.s)];
        });
      });
}

}  // namespace convnet::cuda
