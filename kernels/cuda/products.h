// Operations made of matrix products, with kernels between them.
#pragma once

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {

/// Its work goes into a queue, which matrix products need.
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

/// An operation on no images: what sums over them is zero, all else that it writes has no elements.
inline Prepared prepare_empty(const OpDesc& op, const OpForm& form) {
  return std::make_shared<KernelOp>(form, [args = arguments(op), tensors = form.args](
                                              Stream stream, std::span<std::byte* const> p, std::byte*) {
    for (std::size_t i = 0; i < args.size(); ++i)
      if (args[i].access == Access::write) for_each(stream, tensors[i].bytes(), Zeros{p[i]});
  });
}

/// See finish_columns().
template <class T>
struct FinishColumns {
  const float* bias;
  std::int64_t columns;
  bool relu;
  T* matrix;
  CONVNET_DEVICE void operator()(std::int64_t i) const {
    float v = to_float(matrix[i]);
    if (bias != nullptr) v += bias[divide(i, columns).rest];
    matrix[i] = stored_as<T>(relu ? ReluFunctor{}.forward(v) : v);
  }
};

/// matrix += bias, a number for every column, unless it is null; then max(0,x) if `relu`, which keeps NaN.
/// The library's products could do both, but their relu loses NaN, they add no f32 to bf16, and the same bias
/// to all matrices of a batch.
inline void finish_columns(Stream stream, std::int64_t rows, std::int64_t columns, const float* bias,
                           bool relu, DataType type, std::byte* matrix) {
  if (bias == nullptr && !relu) return;
  with_stored_type(type, [&](auto stored) {
    using T = decltype(stored);
    for_each(stream, rows * columns, FinishColumns<T>{bias, columns, relu, reinterpret_cast<T*>(matrix)});
  });
}

}  // namespace convnet::cuda
