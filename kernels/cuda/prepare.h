// How each operation is prepared for CUDA; backend.cpp dispatches here. See Backend::bind for the contract.
// Convolutions: cuDNN; matrix products: cuBLASLt. The rest: own kernels, bodies over an index (launch.h).
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

/// The settings that all operations of a backend have in common.
struct Context {
  Precision precision = Precision::tf32;
  int device = 0;            ///< where the operation will run
  Tuning* tuning = nullptr;  ///< algorithms that were chosen by timing; null where nothing is timed
};

/// Specialised once for every operation, in the file of its family.
template <class Op>
Prepared prepare(const Op& op, const OpForm& form, const Context& context);

/// An own kernel, or several: a function that puts them on a stream.
class KernelOp : public PreparedOp {
 public:
  using Kernel = std::function<void(Stream, std::span<std::byte* const> args, std::byte* workspace)>;
  KernelOp(const OpForm& form, Kernel kernel) : kernel_(std::move(kernel)) {
    args_ = form.args;
    workspace_bytes_ = form.workspace_bytes;
    algorithm_ = form.algorithm;
  }
  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override {
    kernel_(stream_of(queue), pointers, workspace);
  }

 private:
  Kernel kernel_;
};

/// Calls f with a value of the C++ type that `type` (f32 or bf16) is stored as.
template <class F>
void with_stored_type(DataType type, const F& f) {
  if (type == DataType::bf16)
    f(BFloat16{});
  else
    f(0.0F);
}

}  // namespace convnet::cuda
