// How each operation is prepared for CUDA; backend.cpp dispatches here. See Backend::prepare for the
// contract. Convolutions: cuDNN; matrix products: cuBLASLt. The rest: own kernels, bodies over an index
// (launch.h).
#pragma once

#include <functional>
#include <memory>

#include "kernels/arguments.h"
#include "kernels/backend.h"
#include "kernels/bf16.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/runtime.h"

namespace convnet::cuda {

using Prepared = std::shared_ptr<const PreparedOp>;

class Tuning;

/// What all operations of a backend have in common.
struct Context {
  Precision precision = Precision::tf32;
  Tuning* tuning = nullptr;  ///< algorithms that were chosen by timing; null where nothing is timed
};

/// Specialised once for every operation, in the file of its family.
template <class Op>
Prepared prepare(const Op& op, const LayoutHints& hints, const Context& context);

/// An own kernel, or several: a function that puts them on a stream.
class KernelOp : public PreparedOp {
 public:
  using Kernel = std::function<void(Stream, std::span<std::byte* const> args, std::byte* workspace)>;
  KernelOp(std::vector<TensorDesc> args, Kernel kernel, std::int64_t workspace_bytes = 0)
      : kernel_(std::move(kernel)) {
    args_ = std::move(args);
    workspace_bytes_ = workspace_bytes;
  }
  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override {
    kernel_(stream_of(queue), pointers, workspace);
  }

 private:
  Kernel kernel_;
};

/// Argument `index`, of type `type`, as it lies now where that is decided, else as this backend likes it.
inline TensorDesc hinted_or_preferred(const Dims& dims, const LayoutHints& hints, std::size_t index,
                                      DataType type = DataType::f32) {
  if (index < hints.size() && hints[index]) return {dims, type, hinted_layout(hints, index, type)};
  return channels_last(dims, type);
}

/// The type of argument `index` where it is one that activations are stored as, else f32: what operations
/// that read either follow.
inline DataType hinted_type(const LayoutHints& hints, std::size_t index) {
  const bool bf16 = index < hints.size() && hints[index] && hints[index]->type == DataType::bf16;
  return bf16 ? DataType::bf16 : DataType::f32;
}
/// As it lies, and is stored, now.
inline TensorDesc hinted_activation(const Dims& dims, const LayoutHints& hints, std::size_t index) {
  return hinted_or_preferred(dims, hints, index, hinted_type(hints, index));
}

/// Calls f with a value of the C++ type that `type` (f32 or bf16) is stored as.
template <class F>
void with_stored_type(DataType type, const F& f) {
  if (type == DataType::bf16)
    f(BFloat16{});
  else
    f(0.0F);
}

/// Of factors and activations where products compute in `precision`.
inline DataType product_type(const Context& context) {
  return context.precision == Precision::bf16 ? DataType::bf16 : DataType::f32;
}

}  // namespace convnet::cuda
