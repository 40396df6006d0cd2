// Dropout and noisy relu: the random words of canonical elements, as on every device (philox.h).
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"
#include "kernels/philox.h"

namespace convnet::cuda {
namespace {

/// What the words of a tensor's elements depend on.
struct Words {
  View view;
  std::uint64_t key;
  std::int64_t first_image, first_element;

  CONVNET_HD std::uint32_t image(const View::Place& at) const {
    return static_cast<std::uint32_t>(first_image + at.n);
  }
  CONVNET_HD std::uint32_t element(const View::Place& at) const {
    return static_cast<std::uint32_t>(first_element + at.c * view.spatial() + at.s);
  }
};

template <class Op>
Words words_of(const Op& op, const TensorDesc& tensor) {
  return {view_of(tensor), op.key, op.first_image, op.first_element};
}

}  // namespace

template <>
Prepared prepare(const Dropout& op, const LayoutHints& hints, const Context&) {
  const TensorDesc tensor = hinted_or_preferred(op.dims, hints, 0);
  // An element is kept where its word is below this.
  const auto threshold = static_cast<std::uint64_t>(static_cast<double>(op.keep) * 0x1p32);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor.layout), [words = words_of(op, tensor), threshold, scale = op.scale](
                                               Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float* src = as_floats(args[0]);
        float* dst = as_floats(args[1]);
        const auto* step = reinterpret_cast<const StepHeader*>(args[2]);
        for_each(stream, words.view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = words.view.place(i);
          const std::uint32_t word =
              element_random(words.key, step->iteration, words.image(at), words.element(at));
          dst[i] = word < threshold ? src[i] * scale : 0.0F;
        });
      });
}

template <>
Prepared prepare(const NoisyRelu& op, const LayoutHints& hints, const Context&) {
  const TensorDesc tensor = hinted_or_preferred(op.dims, hints, 0);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor.layout),
      [words = words_of(op, tensor)](Stream stream, std::span<std::byte* const> args, std::byte*) {
        const float* src = as_floats(args[0]);
        float* dst = as_floats(args[1]);
        const auto* step = reinterpret_cast<const StepHeader*>(args[2]);
        for_each(stream, words.view.size(), [=] CONVNET_DEVICE(std::int64_t i) {
          const View::Place at = words.view.place(i);
          const float x = src[i];
          const float deviation = std::sqrt(1 / (1 + std::exp(-x)));
          const float noise = element_normal(words.key, step->iteration, words.image(at), words.element(at));
          dst[i] = ReluFunctor{}.forward(x + deviation * noise);
        });
      });
}

}  // namespace convnet::cuda
