// How operations are prepared for CUDA. backend.cpp calls these functions; see Backend::bind for the
// contract. cuDNN computes convolutions, cuBLASLt computes matrix products, and our own kernels, which are
// bodies over an index (launch.h), compute everything else.
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

/// Settings for preparing an operation.
struct Context {
  Precision precision = Precision::tf32;
  int device = 0;            ///< the physical device that the operation will run on
  Tuning* tuning = nullptr;  ///< algorithms that were chosen by timing; null if nothing is timed
};

/// Prepares an operation. The file of each family specialises it for its operations.
template <class Op>
Prepared prepare(const Op& op, const OpForm& form, const Context& context);

/// One or several of our own kernels: a function that launches them on a stream.
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
