// Biases of single elements. They are stored plain; for blocked activations a blocked copy of one image's
// size is made at each call.
#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

/// The activations of an operation and their view. A layout that has no view is replaced by the plain one,
/// in which images of any dimensions are flat vectors.
struct Images {
  Images(const Dims& dims, const LayoutHints& hints, std::size_t index)
      : tensor(hinted_activation(dims, hints, index)) {
    const auto walked = activation_view(tensor);
    if (!walked) tensor.layout = nullptr;
    if (walked && walked->block > 1) {
      view = *walked;
    } else {
      view = {dims.at(0), element_count({dims.begin() + 1, dims.end()}), 1, 1, 0};
      view.padded_c = view.c;
    }
  }
  /// Returns the number of elements of one image in memory.
  std::int64_t numbers() const { return view.padded_c * view.spatial; }

  TensorDesc tensor;
  ActivationView view;
};

/// Calls visit(plain index, index in the image's layout) for all elements of one image.
template <class Visit>
void for_elements(const ActivationView& v, const Visit& visit) {
  for (std::int64_t c = 0; c < v.c; ++c)
    for (std::int64_t s = 0; s < v.spatial; ++s)
      visit(c * v.spatial + s, (c / v.block * v.spatial + s) * v.block + c % v.block);
}

}  // namespace

Prepared prepare(const AddBias& op, const LayoutHints& hints) {
  const Images images(op.dims, hints, 1);
  std::vector<TensorDesc> args = argument_tensors(op);
  args[1] = images.tensor;
  return std::make_shared<KernelOp>(
      std::move(args), [view = images.view, type = images.tensor.type,
                        numbers = images.numbers()](std::span<std::byte* const> p) {
        const float* bias = as_floats(p[0]);
        std::vector<float> blocked;
        if (view.block > 1) {
          blocked.resize(static_cast<std::size_t>(numbers));  // zeros in the padding
          for_elements(view, [&](std::int64_t plain, std::int64_t at) {
            blocked[static_cast<std::size_t>(at)] = bias[plain];
          });
          bias = blocked.data();
        }
        with_stored(type, [&]<class T>(T) {
          T* dst = as<T>(p[1]);
#pragma omp parallel for schedule(static) if (view.n * numbers >= kParallelElements)
          for (std::int64_t n = 0; n < view.n; ++n) add_scaled(bias, 1, numbers, dst + n * numbers);
        });
      });
}

Prepared prepare(const BiasBackward& op, const LayoutHints& hints) {
  const Images images(op.dims, hints, 0);
  std::vector<TensorDesc> args = argument_tensors(op);
  args[0] = images.tensor;
  return std::make_shared<KernelOp>(
      std::move(args), [view = images.view, type = images.tensor.type,
                        numbers = images.numbers()](std::span<std::byte* const> p) {
        float* diff_bias = as_floats(p[1]);
        std::vector<float> blocked(static_cast<std::size_t>(view.block > 1 ? numbers : 0));
        float* sums = view.block > 1 ? blocked.data() : diff_bias;
        // Pieces that stay in the first-level cache.
        constexpr std::int64_t kPiece = 1024;
        const std::int64_t pieces = (numbers + kPiece - 1) / kPiece;
        with_stored(type, [&]<class T>(T) {
          const T* diff_dst = as<T>(p[0]);
#pragma omp parallel for schedule(static) if (view.n * numbers >= kParallelElements)
          for (std::int64_t i = 0; i < pieces; ++i) {
            const std::int64_t begin = i * kPiece, count = std::min(kPiece, numbers - begin);
            std::fill_n(sums + begin, count, 0.0F);
            for (std::int64_t n = 0; n < view.n; ++n)
              add_scaled(diff_dst + n * numbers + begin, 1, count, sums + begin);
          }
        });
        if (view.block > 1)
          for_elements(view, [&](std::int64_t plain, std::int64_t at) {
            diff_bias[plain] = blocked[static_cast<std::size_t>(at)];
          });
      });
}

}  // namespace convnet::cpu::own
