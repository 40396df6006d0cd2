// How each operation is prepared on the CPU; backend.cpp dispatches here. Target::form and Backend::bind
// (kernels/) are the contract. conv, inner_product, pool, reorder: oneDNN. The rest: own kernels with OpenMP.
#pragma once

#include <functional>
#include <memory>

#include "kernels/backend.h"

namespace convnet::cpu {

using Prepared = std::shared_ptr<const PreparedOp>;

// `type`: of the factors, and of the activations that are made.
Prepared prepare(const ConvForward& op, const LayoutHints& hints, DataType type = DataType::f32);
Prepared prepare(const ConvBackwardData& op, const LayoutHints& hints, DataType type = DataType::f32);
Prepared prepare(const ConvBackwardWeights& op, const LayoutHints& hints, DataType type = DataType::f32);
Prepared prepare(const InnerProductForward& op, const LayoutHints& hints, DataType type = DataType::f32);
Prepared prepare(const InnerProductBackwardData& op, const LayoutHints& hints, DataType type = DataType::f32);
Prepared prepare(const InnerProductBackwardWeights& op, const LayoutHints& hints,
                 DataType type = DataType::f32);
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
Prepared prepare(const LocalForward& op, const LayoutHints& hints);
Prepared prepare(const LocalBackwardData& op, const LayoutHints& hints);
Prepared prepare(const LocalBackwardWeights& op, const LayoutHints& hints);
Prepared prepare(const AddBias& op, const LayoutHints& hints);
Prepared prepare(const BiasBackward& op, const LayoutHints& hints);
Prepared prepare(const CrossMapPoolForward& op, const LayoutHints& hints);
Prepared prepare(const CrossMapPoolBackward& op, const LayoutHints& hints);
Prepared prepare(const WindowNormForward& op, const LayoutHints& hints);
Prepared prepare(const WindowNormBackward& op, const LayoutHints& hints);
Prepared prepare(const BatchNormMoments& op, const LayoutHints& hints);
Prepared prepare(const BatchNormForward& op, const LayoutHints& hints);
Prepared prepare(const BatchNormTrack& op, const LayoutHints& hints);
Prepared prepare(const BatchNormBackwardWeights& op, const LayoutHints& hints);
Prepared prepare(const BatchNormBackwardData& op, const LayoutHints& hints);
Prepared prepare(const NoisyRelu& op, const LayoutHints& hints);
Prepared prepare(const EltwiseSum& op, const LayoutHints& hints);
Prepared prepare(const EltwiseMax& op, const LayoutHints& hints);
Prepared prepare(const EltwiseMaxBackward& op, const LayoutHints& hints);
Prepared prepare(const Concat& op, const LayoutHints& hints);
Prepared prepare(const Split& op, const LayoutHints& hints);
Prepared prepare(const GroupSumForward& op, const LayoutHints& hints);
Prepared prepare(const GroupSumBackward& op, const LayoutHints& hints);
Prepared prepare(const SampleForward& op, const LayoutHints& hints);
Prepared prepare(const SampleBackward& op, const LayoutHints& hints);
Prepared prepare(const Blur& op, const LayoutHints& hints);
Prepared prepare(const Resize& op, const LayoutHints& hints);
Prepared prepare(const RandomScale& op, const LayoutHints& hints);
Prepared prepare(const ColorTransform& op, const LayoutHints& hints);
Prepared prepare(const CrossentForward& op, const LayoutHints& hints);
Prepared prepare(const CrossentBackward& op, const LayoutHints& hints);
Prepared prepare(const SoftmaxCrossentBackward& op, const LayoutHints& hints);
Prepared prepare(const BinaryCostForward& op, const LayoutHints& hints);
Prepared prepare(const BinaryCostBackward& op, const LayoutHints& hints);
Prepared prepare(const LogisticBinaryCostBackward& op, const LayoutHints& hints);
Prepared prepare(const SquaresForward& op, const LayoutHints& hints);
Prepared prepare(const SquaresBackward& op, const LayoutHints& hints);
Prepared prepare(const Constrain& op, const LayoutHints& hints);
Prepared prepare(const AnyBroken& op, const LayoutHints& hints);
Prepared prepare(const BatchNormMerge& op, const LayoutHints& hints);
Prepared prepare(const CopyRuns& op, const LayoutHints& hints);
Prepared prepare(const SumRuns& op, const LayoutHints& hints);

/// An own kernel: a function over the arguments' memory, with its argument layouts.
class KernelOp : public PreparedOp {
 public:
  using Kernel = std::function<void(std::span<std::byte* const>)>;
  KernelOp(std::vector<TensorDesc> args, Kernel kernel) : kernel_(std::move(kernel)) {
    args_ = std::move(args);
  }
  void run(std::span<std::byte* const> pointers, std::byte*, Queue*) const override { kernel_(pointers); }

 private:
  Kernel kernel_;
};

}  // namespace convnet::cpu
