// Operations made of matrix products, with kernels between them.
#pragma once

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sizes.h"

namespace convnet::cuda {

/// An operation that needs the queue, not just its stream, because matrix products do.
class ProductOp : public PreparedOp {
 public:
  using Work = std::function<void(Queue*, std::span<std::byte* const> args, std::byte* workspace)>;
  /// `workspace_bytes` is not more than the form's.
  ProductOp(const OpForm& form, std::int64_t workspace_bytes, Work work, std::string algorithm = "own")
      : work_(std::move(work)) {
    args_ = form.args;
    workspace_bytes_ = workspace_bytes;
    algorithm_ = std::move(algorithm);
  }
  void run(std::span<std::byte* const> pointers, std::byte* workspace, Queue* queue) const override {
    work_(queue, pointers, workspace);
  }

 private:
  Work work_;
};

/// Zeroes bytes.
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

}  // namespace convnet::cuda
