// How each operation is prepared for CUDA; backend.cpp dispatches here. See Backend::prepare for the
// contract. Convolutions: cuDNN; matrix products: cuBLASLt. The rest: own kernels, bodies over an index
// (launch.h).
#pragma once

#include <functional>
#include <memory>

#include "kernels/arguments.h"
#include "kernels/backend.h"
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

/// Argument `index` as it lies now where that is decided, else as this backend likes it.
inline TensorDesc hinted_or_preferred(const Dims& dims, const LayoutHints& hints, std::size_t index) {
  if (index < hints.size() && hints[index]) return {dims, DataType::f32, hints[index]->layout};
  return channels_last(dims);
}

}  // namespace convnet::cuda
