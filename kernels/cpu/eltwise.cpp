// Sums and maxima of several tensors: flat loops over the memory, whatever the layout; padding holds zeros
// everywhere and so gives zeros.
#include <stdexcept>

#include "kernels/cpu/own_kernel.h"

namespace convnet::cpu::own {
namespace {

/// The arguments of `op`, all in the layout of the first one, and their floats in memory.
struct Flat {
  std::vector<TensorDesc> tensors;
  std::int64_t count = 0;

  Flat(const OpDesc& op, std::size_t inputs, const LayoutHints& hints)
      : tensors(argument_tensors(op, hinted_layout(hints, 0))) {
    if (inputs == 0) throw std::logic_error(op_name(op) + ": no inputs");
    count = stored_floats(tensors[0]);
  }
};

// Functions of their own: on captured pointers the compiler gathers and scatters.

void scale(const float* __restrict src, float coeff, std::int64_t count, float* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = coeff * src[i];
}

void scale_two(const float* __restrict a, float coeff_a, const float* __restrict b, float coeff_b,
               std::int64_t count, float* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = coeff_a * a[i] + coeff_b * b[i];
}

void max_of_two(const float* __restrict a, const float* __restrict b, std::int64_t count,
                float* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = beats(b[i], a[i]) ? b[i] : a[i];
}

void max_of(const float* __restrict src, std::int64_t count, float* __restrict dst) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = beats(src[i], dst[i]) ? src[i] : dst[i];
}

/// Zeroes `diff` where a value of `own` is not the maximum because of `other`, which comes before it or
/// after.
void keep_winners(const float* __restrict own, const float* __restrict other, bool before, std::int64_t count,
                  float* __restrict diff) {
  if (before) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) diff[i] = beats(own[i], other[i]) ? diff[i] : 0.0F;
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) diff[i] = beats(other[i], own[i]) ? 0.0F : diff[i];
  }
}

}  // namespace

Prepared prepare(const EltwiseSum& op, const LayoutHints& hints) {
  const Flat flat(op, op.coeffs.size(), hints);
  return std::make_shared<KernelOp>(
      flat.tensors, [coeffs = op.coeffs, count = flat.count](std::span<std::byte* const> args) {
        float* dst = as_floats(args.back());
        for_pieces(count, [=, &coeffs](std::int64_t begin, std::int64_t end) {
          const auto src = [=](std::size_t k) { return as_floats(args[k]) + begin; };
          if (coeffs.size() == 1)
            scale(src(0), coeffs[0], end - begin, dst + begin);
          else
            scale_two(src(0), coeffs[0], src(1), coeffs[1], end - begin, dst + begin);
          for (std::size_t k = 2; k < coeffs.size(); ++k)
            add_scaled(src(k), coeffs[k], end - begin, dst + begin);
        });
      });
}

Prepared prepare(const EltwiseMax& op, const LayoutHints& hints) {
  const auto inputs = static_cast<std::size_t>(op.inputs);
  const Flat flat(op, inputs, hints);
  return std::make_shared<KernelOp>(
      flat.tensors, [inputs, count = flat.count](std::span<std::byte* const> args) {
        float* dst = as_floats(args.back());
        for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
          const auto src = [=](std::size_t k) { return as_floats(args[k]) + begin; };
          if (inputs == 1)
            std::copy_n(src(0), end - begin, dst + begin);
          else
            max_of_two(src(0), src(1), end - begin, dst + begin);
          for (std::size_t k = 2; k < inputs; ++k) max_of(src(k), end - begin, dst + begin);
        });
      });
}

Prepared prepare(const EltwiseMaxBackward& op, const LayoutHints& hints) {
  const auto inputs = static_cast<std::size_t>(op.inputs), index = static_cast<std::size_t>(op.index);
  const Flat flat(op, inputs, hints);
  if (index >= inputs) throw std::logic_error("eltmax: no input " + std::to_string(index));
  return std::make_shared<KernelOp>(
      flat.tensors, [inputs, index, count = flat.count](std::span<std::byte* const> args) {
        const float* diff_dst = as_floats(args[inputs]);
        float* diff_src = as_floats(args[inputs + 1]);
        for_pieces(count, [=](std::int64_t begin, std::int64_t end) {
          std::copy_n(diff_dst + begin, end - begin, diff_src + begin);
          for (std::size_t k = 0; k < inputs; ++k)
            if (k != index)
              keep_winners(as_floats(args[index]) + begin, as_floats(args[k]) + begin, k < index, end - begin,
                           diff_src + begin);
        });
      });
}

}  // namespace convnet::cpu::own
