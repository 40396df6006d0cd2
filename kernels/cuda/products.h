// Operations made of matrix products, with kernels between them.
#pragma once

#include "kernels/cuda/activations.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {

/// An operation that needs the queue, not just its stream, because matrix products do.
class ProductOp : public PreparedOp {
 public:
  using Work = std::function<void(Queue*, std::span<std::byte* const> args, std::byte* workspace)>;
  /// `workspace_bytes` is not more than the form's.
  ProductOp(const OpForm& form, std::int64_t workspace_bytes, Work work) : work_(std::move(work)) {
    args_ = form.args;
    workspace_bytes_ = workspace_bytes;
  }
  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override {
    work_(queue, pointers, workspace);
  }

 private:
  Work work_;
};

struct Zeros {
  std::byte* memory;
  CONVNET_DEVICE void operator()(std::int64_t i) const { memory[i] = std::byte{0}; }
};

/// Prepares an operation on no images: results that are sums over images become zero; the others have no
/// elements.
inline Prepared prepare_empty(const OpDesc& op, const OpForm& form) {
  return std::make_shared<KernelOp>(form, [args = arguments(op), tensors = form.args](
                                              Stream stream, std::span<std::byte* const> p, std::byte*) {
    for (std::size_t i = 0; i < args.size(); ++i)
      if (args[i].access == Access::write) for_each(stream, tensors[i].bytes(), Zeros{p[i]});
  });
}

/// See finish_columns().
template <int Lanes, class T>
struct FinishColumns {
  const float* bias;
  std::int64_t vectors;  ///< number of vectors in a row
  bool relu;
  Numbers<T, Lanes> matrix;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    Vector<float, Lanes> v = matrix[i];
    const std::int64_t column = bias == nullptr ? 0 : divide(i, vectors).rest * Lanes;
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) {
      if (bias != nullptr) v.lane[lane] += bias[column + lane];
      if (relu) v.lane[lane] = ReluFunctor{}.forward(v.lane[lane]);
    }
    matrix.set(i, v);
  }
};

/// Adds `bias`, a number for every column, to the matrix unless it is null; then applies max(0,x) if `relu`,
/// keeping NaN. The library's products could do both, but their relu loses NaN, and they can neither add f32
/// to bf16 nor a different bias to each matrix of a batch.
inline void finish_columns(Stream stream, std::int64_t rows, std::int64_t columns, const float* bias,
                           bool relu, DataType type, std::byte* matrix) {
  if (bias == nullptr && !relu) return;
  with_stored_type(type, [&](auto stored) {
    using T = decltype(stored);
    constexpr std::int64_t kLoad = 16;
    constexpr int kTogether = kLoad / sizeof(T);
    if (columns % kTogether == 0 && reinterpret_cast<std::uintptr_t>(matrix) % kLoad == 0)
      for_each(stream, rows * columns / kTogether,
               FinishColumns<kTogether, T>{bias, columns / kTogether, relu, Numbers<T, kTogether>(matrix)});
    else
      for_each(stream, rows * columns, FinishColumns<1, T>{bias, columns, relu, Numbers<T, 1>(matrix)});
  });
}

}  // namespace convnet::cuda
