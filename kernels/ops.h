// Every operation that a device can run, described by plain structs (in ops/, by family). A description says
// what is computed, never on which device or in which layout: targets (target.h) decide on layouts, backends
// (backend.h) compute. README.md says how to add an operation.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kernels/ops/argument.h"
#include "kernels/ops/costs.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/images.h"
#include "kernels/ops/memory.h"
#include "kernels/ops/norms.h"
#include "kernels/ops/pooling.h"
#include "kernels/ops/products.h"
#include "kernels/ops/update.h"

namespace convnet {

/// All operations. Each is a struct with
///   std::string name() const                   the name in plans, profiles and errors ("conv.forward")
///   std::vector<Argument> arguments() const    the tensors it reads and writes, in order
/// and, where there is something to say,
///   double flops() const                       its floating-point operations; a multiply-add counts 2
///   std::vector<std::int64_t> settings() const numbers besides the arguments' shapes that its time depends
///   on
using AnyOp = std::variant<
    ConvForward, ConvBackwardData, ConvBackwardWeights, InnerProductForward, InnerProductBackwardData,
    InnerProductBackwardWeights, PoolForward, PoolBackward, CrossMapNormForward, CrossMapNormBackward,
    NeuronForward, NeuronBackward, Dropout, Scale, SoftmaxForward, SoftmaxBackward, AverageViews,
    LogregForward, LogregBackward, SoftmaxLogregBackward, LoadImages, LoadLabels, Reorder, Accumulate,
    FillZero, Update, LocalForward, LocalBackwardData, LocalBackwardWeights, AddBias, BiasBackward,
    CrossMapPoolForward, CrossMapPoolBackward, WindowNormForward, WindowNormBackward, BatchNormMoments,
    BatchNormForward, BatchNormTrack, BatchNormBackwardWeights, BatchNormBackwardData, NoisyRelu, EltwiseSum,
    EltwiseMax, EltwiseMaxBackward, Concat, Split, SampleForward, SampleBackward, Blur, Resize, RandomScale,
    ColorTransform, CrossentForward, CrossentBackward, BinaryCostForward, BinaryCostBackward,
    LogisticBinaryCostBackward, SquaresForward, SquaresBackward, Constrain, AnyNonFinite, BatchNormMerge,
    CopyRuns, SoftmaxCrossentBackward, SumRuns, UpdateSquares, UpdateScales, Average, EltwiseProduct,
    MapProductSums, TakeMaps>;

/// An operation. It is a class, not an alias of the variant, so that the code that copies one, which has a
/// case for each kind, is compiled only once.
class OpDesc : public AnyOp {
 public:
  using AnyOp::AnyOp;
  OpDesc();
  OpDesc(const OpDesc& other);
  OpDesc(OpDesc&& other) noexcept;
  OpDesc& operator=(const OpDesc& other);
  OpDesc& operator=(OpDesc&& other) noexcept;
  ~OpDesc();
};

/// Returns the arguments of an operation, in order.
std::vector<Argument> arguments(const OpDesc& op);
/// Returns the name in plans, profiles and errors: "conv.forward", "update", ...
std::string op_name(const OpDesc& op);
/// Returns the floating-point operations; 0 for operations that are bound by memory.
double op_flops(const OpDesc& op);
/// Returns whether another operation is fused into this one (its fields `sum`, `moments`, `track` and
/// `mask`); see Target::fuses().
bool is_fused(const OpDesc& op);
/// Returns the numbers, besides the shapes of the arguments, on which the time of the operation depends.
std::vector<std::int64_t> op_settings(const OpDesc& op);

}  // namespace convnet
