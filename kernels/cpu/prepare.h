// How each operation is prepared on the CPU; backend.cpp dispatches here. See Backend::prepare for the
// contract. conv, inner_product, pool, reorder: oneDNN. The rest: own kernels with OpenMP.
#pragma once

#include <functional>
#include <memory>

#include "kernels/backend.h"

namespace convnet::cpu {

using Prepared = std::shared_ptr<const PreparedOp>;

Prepared prepare(const ConvForward& op, const LayoutHints& hints);
Prepared prepare(const ConvBackwardData& op, const LayoutHints& hints);
Prepared prepare(const ConvBackwardWeights& op, const LayoutHints& hints);
Prepared prepare(const InnerProductForward& op, const LayoutHints& hints);
Prepared prepare(const InnerProductBackwardData& op, const LayoutHints& hints);
Prepared prepare(const InnerProductBackwardWeights& op, const LayoutHints& hints);
Prepared prepare(const PoolForward& op, const LayoutHints& hints);
Prepared prepare(const PoolBackward& op, const LayoutHints& hints);
Prepared prepare(const Reorder& op, const LayoutHints& hints);

Prepared prepare(const CrossMapNormForward& op, const LayoutHints& hints);
Prepared prepare(const CrossMapNormBackward& op, const LayoutHints& hints);
Prepared prepare(const NeuronForward& op, const LayoutHints& hints);
Prepared prepare(const NeuronBackward& op, const LayoutHints& hints);
Prepared prepare(const Dropout& op, const LayoutHints& hints);
Prepared prepare(const Scale& op, const LayoutHints& hints);
Prepared prepare(const SoftmaxForward& op, const LayoutHints& hints);
Prepared prepare(const SoftmaxBackward& op, const LayoutHints& hints);
Prepared prepare(const LogregForward& op, const LayoutHints& hints);
Prepared prepare(const LogregBackward& op, const LayoutHints& hints);
Prepared prepare(const SoftmaxLogregBackward& op, const LayoutHints& hints);
Prepared prepare(const LoadImages& op, const LayoutHints& hints);
Prepared prepare(const LoadLabels& op, const LayoutHints& hints);
Prepared prepare(const Accumulate& op, const LayoutHints& hints);
Prepared prepare(const FillZero& op, const LayoutHints& hints);
Prepared prepare(const Update& op, const LayoutHints& hints);

/// An own kernel: a function over the arguments' memory, with its argument layouts.
class KernelOp : public PreparedOp {
 public:
  using Kernel = std::function<void(std::span<std::byte* const>)>;
  KernelOp(std::vector<TensorDesc> args, Kernel kernel) : kernel_(std::move(kernel)) {
    args_ = std::move(args);
  }
  void run(std::span<std::byte* const> pointers, std::byte*) const override { kernel_(pointers); }

 private:
  Kernel kernel_;
};

}  // namespace convnet::cpu
