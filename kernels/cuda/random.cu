// Dropout and noisy relu. The random words belong to canonical elements, maps or images, as on every device
// (philox.h).
#include <cmath>
#include <type_traits>

#include "convnet/base/philox.h"
#include "kernels/cuda/activations.h"
#include "kernels/cuda/prepare.h"
#include "kernels/functors.h"

namespace convnet::cuda {
namespace {

/// The inputs that determine the random words of a tensor's elements.
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

/// Keeps the elements whose words are below `threshold`, multiplied by `scale`, and zeroes the others.
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

/// Does the same for four neighbouring elements of an image, which have the four words of one Philox counter.
template <class T>
struct DropFour {
  std::uint64_t key;
  std::int64_t first_image, first_element;
  std::int64_t quads;  ///< groups of four elements in an image
  std::uint64_t threshold;
  float scale;
  Numbers<T, 4> src, dst;
  const StepHeader* step;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const Quotient at = divide(i, quads);
    const Philox4x32 words =
        element_words(key, step->iteration, static_cast<std::uint32_t>(first_image + at.value),
                      static_cast<std::uint32_t>(first_element / 4 + at.rest));
    Vector<float, 4> x = src[i];
    CONVNET_UNROLL
    for (int k = 0; k < 4; ++k) x.lane[k] = words.value[k] < threshold ? x.lane[k] * scale : 0.0F;
    dst.set(i, x);
  }
};

/// Keeps or zeroes whole maps, or whole images, in the same way. A thread does `Lanes` values that are
/// neighbours in memory. Those of different maps have neighbouring words.
template <class T, int Lanes>
struct DropUnits {
  Words words;
  std::int64_t first_map;
  DropUnit unit;
  std::uint64_t threshold;
  float scale;
  Numbers<T, Lanes> src, dst;
  const StepHeader* step;

  CONVNET_DEVICE void operator()(std::int64_t i) const {
    const View::Place at = words.view.place(i * Lanes);
    const bool maps = unit == DropUnit::map;
    const auto element = static_cast<std::uint32_t>(maps ? first_map + at.c : 0);
    const Philox4x32 four = element_words(words.key, step->iteration, words.image(at), element / 4);
    Vector<float, Lanes> x = src[i];
    CONVNET_UNROLL
    for (int k = 0; k < Lanes; ++k) {
      const std::uint32_t lane = maps && words.view.last ? static_cast<std::uint32_t>(k) : 0;
      x.lane[k] = word_of(four, element % 4 + lane) < threshold ? x.lane[k] * scale : 0.0F;
    }
    dst.set(i, x);
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
Prepared prepare(const Dropout& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  const auto threshold = static_cast<std::uint64_t>(static_cast<double>(op.keep) * 0x1p32);
  return std::make_shared<KernelOp>(form, [words = words_of(op, tensor), type = tensor.type, threshold,
                                           scale = op.scale, unit = op.unit](
                                              Stream stream, std::span<std::byte* const> args, std::byte*) {
    const View& view = words.view;
    const std::int64_t elements = view.c * view.spatial();
    const auto* step = reinterpret_cast<const StepHeader*>(args[2]);
    // Whether elements lie in memory in their canonical order.
    const bool in_order = !view.last || view.spatial() == 1 || view.c == 1;
    with_stored_type(type, [&](auto stored) {
      using T = decltype(stored);
      if (unit != DropUnit::value) {
        const std::int64_t first_map = words.first_element / std::max<std::int64_t>(1, view.spatial());
        const auto drop = [&](auto lanes) {
          constexpr int kCount = decltype(lanes)::value;
          for_each(stream, view.size() / kCount,
                   DropUnits<T, kCount>{words, first_map, unit, threshold, scale, Numbers<T, kCount>(args[0]),
                                        Numbers<T, kCount>(args[1]), step});
        };
        bool by_four = elements % 4 == 0;
        if (unit == DropUnit::map)
          by_four = view.last ? view.c % 4 == 0 && first_map % 4 == 0 : view.spatial() % 4 == 0;
        return by_four ? drop(std::integral_constant<int, 4>{}) : drop(std::integral_constant<int, 1>{});
      }
      if (in_order && words.first_element % 4 == 0 && elements % 4 == 0)
        return for_each(stream, view.size() / 4,
                        DropFour<T>{words.key, words.first_image, words.first_element, elements / 4,
                                    threshold, scale, Numbers<T, 4>(args[0]), Numbers<T, 4>(args[1]), step});
      for_each(stream, view.size(),
               Drop<T>{words, threshold, scale, reinterpret_cast<const T*>(args[0]),
                       reinterpret_cast<T*>(args[1]), step});
    });
  });
}

template <>
Prepared prepare(const NoisyRelu& op, const OpForm& form, const Context&) {
  const TensorDesc& tensor = form.args[0];
  return std::make_shared<KernelOp>(form, [words = words_of(op, tensor), type = tensor.type](
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
