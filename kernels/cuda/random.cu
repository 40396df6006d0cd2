// Dropout and noisy relu: the random words of canonical elements, as on every device (philox.h).
#include "convnet/base/philox.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"

namespace convnet::cuda {
namespace {

/// The numbers that the words of a tensor's elements depend on.
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

/// An element is kept where its word is below `threshold`.
template <class T>
struct Drop {
  Words words;
  std::uint64_t threshold;
  float scale;
  const T* src;
  T* dst;
  const StepHeader* step;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = words.view.place(i);
    const std::uint32_t word = element_random(words.key, step->iteration, words.image(at), words.element(at));
    dst[i] = word < threshold ? stored_as<T>(to_float(src[i]) * scale) : T{};
  }
};

template <class T>
struct AddNoise {
  Words words;
  const T* src;
  T* dst;
  const StepHeader* step;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = words.view.place(i);
    const float x = to_float(src[i]);
    const float deviation = std::sqrt(1 / (1 + std::exp(-x)));
    const float noise = element_normal(words.key, step->iteration, words.image(at), words.element(at));
    dst[i] = stored_as<T>(ReluFunctor{}.forward(x + deviation * noise));
  }
};

}  // namespace

template <>
Prepared prepare(const Dropout& op, const LayoutHints& hints, const Context&) {
  const TensorDesc tensor = hinted_activation(op.dims, hints, 0);
  const auto threshold = static_cast<std::uint64_t>(static_cast<double>(op.keep) * 0x1p32);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor),
      [words = words_of(op, tensor), type = tensor.type, threshold, scale = op.scale](
          Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          for_each(stream, words.view.size(),
                   Drop<T>{words, threshold, scale, reinterpret_cast<const T*>(args[0]),
                           reinterpret_cast<T*>(args[1]), reinterpret_cast<const StepHeader*>(args[2])});
        });
      });
}

template <>
Prepared prepare(const NoisyRelu& op, const LayoutHints& hints, const Context&) {
  const TensorDesc tensor = hinted_activation(op.dims, hints, 0);
  return std::make_shared<KernelOp>(
      argument_tensors(op, tensor), [words = words_of(op, tensor), type = tensor.type](
                                        Stream stream, std::span<std::byte* const> args, std::byte*) {
        with_stored_type(type, [&](auto stored) {
          using T = decltype(stored);
          for_each(stream, words.view.size(),
                   AddNoise<T>{words, reinterpret_cast<const T*>(args[0]), reinterpret_cast<T*>(args[1]),
                               reinterpret_cast<const StepHeader*>(args[2])});
        });
      });
}

}  // namespace convnet::cuda
