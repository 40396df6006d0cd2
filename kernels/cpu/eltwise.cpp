// Sums and maxima of several tensors: flat loops over the memory, whatever the layout; padding holds zeros
// everywhere and so gives zeros.
#include <array>
#include <stdexcept>

#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

/// The arguments of `op`, all as the first one lies and is stored, and their numbers in memory.
struct Flat {
  std::vector<TensorDesc> tensors;
  DataType type;
  std::int64_t count = 0;

  Flat(const OpDesc& op, const Dims& dims, std::size_t inputs, const LayoutHints& hints)
      : tensors(argument_tensors(op, hinted_activation(dims, hints, 0))), type(tensors[0].type) {
    if (inputs == 0) throw std::logic_error(op_name(op) + ": no inputs");
    count = stored_numbers(tensors[0]);
  }
};

// These are functions, not lambdas, because compilers do not vectorise loops over captured pointers well.

template <class Source, class T>
void scale(const Source* __restrict src, float coeff, std::int64_t count, T* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = stored_as<T>(coeff * to_float(src[i]));
}

template <class T, class Sum>
void scale_two(const T* __restrict a, float coeff_a, const T* __restrict b, float coeff_b, std::int64_t count,
               Sum* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    dst[i] = stored_as<Sum>(coeff_a * to_float(a[i]) + coeff_b * to_float(b[i]));
}

template <class T>
void max_of_two(const T* __restrict a, const T* __restrict b, std::int64_t count, T* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = beats(to_float(b[i]), to_float(a[i])) ? b[i] : a[i];
}

template <class T>
void max_of(const T* __restrict src, std::int64_t count, T* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    dst[i] = beats(to_float(src[i]), to_float(dst[i])) ? src[i] : dst[i];
}

/// Zeroes `diff` where a value of `own` is not the maximum because of `other`, which comes before it or
/// after.
template <class T>
void keep_winners(const T* __restrict own, const T* __restrict other, bool before, std::int64_t count,
                  T* __restrict diff) {
  if (before) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
      diff[i] = beats(to_float(own[i]), to_float(other[i])) ? diff[i] : T{};
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
      diff[i] = beats(to_float(other[i]), to_float(own[i])) ? T{} : diff[i];
  }
}

}  // namespace

Prepared prepare(const EltwiseSum& op, const LayoutHints& hints) {
  const Flat flat(op, op.dims, op.coeffs.size(), hints);
  return std::make_shared<KernelOp>(flat.tensors, [coeffs = op.coeffs, type = flat.type,
                                                   count = flat.count](std::span<std::byte* const> args) {
    with_stored(type, [&]<class T>(T) {
      T* dst = as<T>(args.back());
      for_pieces(count, [=, &coeffs](std::int64_t begin, std::int64_t end) {
        const auto src = [=](std::size_t k) -> const T* { return as<T>(args[k]) + begin; };
        if (coeffs.size() == 1) return scale(src(0), coeffs[0], end - begin, dst + begin);
        if (coeffs.size() == 2)
          return scale_two(src(0), coeffs[0], src(1), coeffs[1], end - begin, dst + begin);
        std::array<float, kPieceElements> sums;  // rounded once
        scale_two(src(0), coeffs[0], src(1), coeffs[1], end - begin, sums.data());
        for (std::size_t k = 2; k < coeffs.size(); ++k)
          add_scaled(src(k), coeffs[k], end - begin, sums.data());
        scale(sums.data(), 1, end - begin, dst + begin);
      });
    });
  });
}

Prepared prepare(const EltwiseMax& op, const LayoutHints& hints) {
  const auto inputs = static_cast<std::size_t>(op.inputs);
  const Flat flat(op, op.dims, inputs, hints);
  return std::make_shared<KernelOp>(
      flat.tensors, [inputs, type = flat.type, count = flat.count](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          T* dst = as<T>(args.back());
          for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
            const auto src = [=](std::size_t k) -> const T* { return as<T>(args[k]) + begin; };
            if (inputs == 1)
              std::copy_n(src(0), end - begin, dst + begin);
            else
              max_of_two(src(0), src(1), end - begin, dst + begin);
            for (std::size_t k = 2; k < inputs; ++k) max_of(src(k), end - begin, dst + begin);
          });
        });
      });
}

Prepared prepare(const EltwiseMaxBackward& op, const LayoutHints& hints) {
  const auto inputs = static_cast<std::size_t>(op.inputs), index = static_cast<std::size_t>(op.index);
  const Flat flat(op, op.dims, inputs, hints);
  if (index >= inputs) throw std::logic_error("eltmax: no input " + std::to_string(index));
  return std::make_shared<KernelOp>(
      flat.tensors, [inputs, index, type = flat.type, count = flat.count](std::span<std::byte* const> args) {
        with_stored(type, [&]<class T>(T) {
          const T* diff_dst = as<T>(args[inputs]);
          T* diff_src = as<T>(args[inputs + 1]);
          for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
            std::copy_n(diff_dst + begin, end - begin, diff_src + begin);
            for (std::size_t k = 0; k < inputs; ++k)
              if (k != index)
                keep_winners<T>(as<T>(args[index]) + begin, as<T>(args[k]) + begin, k < index, end - begin,
                                diff_src + begin);
          });
        });
      });
}

}  // namespace convnet::cpu::own
