// Our own kernels, which use OpenMP. They are compiled once for each instruction set from which the program
// chooses at run time (kernels/CMakeLists.txt), so everything in namespace `own` exists once for each of
// them. Other code can call them only through the OwnKernels of an instruction set.
#pragma once

#include <vector>

#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/prepare.h"

namespace convnet::cpu {

/// The functions of the own kernels that were compiled for one instruction set.
struct OwnKernels {
  /// Prepares an operation. `type` is the type of the factors of products, in which images are loaded.
  Prepared (*prepare)(const OpDesc& op, const LayoutHints& hints, DataType type);
  /// Prepares a convolution by Winograd's method (winograd.cpp). Returns null if the instruction set has no
  /// vector products of `type`, or if another method is faster.
  Prepared (*prepare_winograd)(const OpDesc& op, DataType type);
  /// Prepares a depthwise convolution (depthwise.cpp, depthwise_outputs.cpp), gradients of filters of few
  /// maps (few_maps.cpp) or of 1x1 pixel (pointwise.cpp), or an inner product (dense.cpp). Returns null for
  /// other operations, and where the library is as fast.
  Prepared (*prepare_direct)(const OpDesc& op, DataType type);
  /// Prepares a reorder (rearrange.cpp). Returns null if the library is as fast.
  Prepared (*prepare_reorder)(const Reorder& op);
  /// Rounds factors of products to bf16, but stores them as f32.
  void (*round_factors)(const float* from, std::int64_t count, float* to);
  /// Measures the FLOP/s of `threads` cores in products of bf16 or f32 numbers: the best of five short loops,
  /// which take about a tenth of a second. Where the instruction set has no vector products of bf16 numbers,
  /// it measures those of f32 numbers. Products of tiles (AMX) are not measured.
  double (*measure_peak_flops)(int threads, DataType factors);
  /// Measures the bytes a second, read and written together, of a copy of 128 MiB.
  double (*measure_copy_bandwidth)(int threads);
};

/// Returns the kernels to compute with on a processor with instruction set `set`. Throws DeviceError if this
/// build has kernels for later processors alone.
const OwnKernels& own_kernels(InstructionSet set);

namespace own {
Prepared prepare(const PoolForward& op, const LayoutHints& hints);
Prepared prepare(const PoolBackward& op, const LayoutHints& hints);
Prepared prepare(const CrossMapNormForward& op, const LayoutHints& hints);
Prepared prepare(const CrossMapNormBackward& op, const LayoutHints& hints);
Prepared prepare(const NeuronForward& op, const LayoutHints& hints);
Prepared prepare(const NeuronBackward& op, const LayoutHints& hints);
Prepared prepare(const Dropout& op, const LayoutHints& hints);
Prepared prepare(const Scale& op, const LayoutHints& hints);
Prepared prepare(const SoftmaxForward& op, const LayoutHints& hints);
Prepared prepare(const AverageViews& op, const LayoutHints& hints);
Prepared prepare(const SoftmaxBackward& op, const LayoutHints& hints);
Prepared prepare(const LogregForward& op, const LayoutHints& hints);
Prepared prepare(const LogregBackward& op, const LayoutHints& hints);
Prepared prepare(const SoftmaxLogregBackward& op, const LayoutHints& hints);
Prepared prepare(const LoadImages& op, const LayoutHints& hints, DataType product_type);
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
Prepared prepare(const EltwiseProduct& op, const LayoutHints& hints);
Prepared prepare(const MapProductSums& op, const LayoutHints& hints);
Prepared prepare(const Concat& op, const LayoutHints& hints);
Prepared prepare(const Split& op, const LayoutHints& hints);
Prepared prepare(const TakeMaps& op, const LayoutHints& hints);
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
Prepared prepare(const AnyNonFinite& op, const LayoutHints& hints);
Prepared prepare(const BatchNormMerge& op, const LayoutHints& hints);
Prepared prepare(const CopyRuns& op, const LayoutHints& hints);
Prepared prepare(const SumRuns& op, const LayoutHints& hints);
Prepared prepare(const UpdateSquares& op, const LayoutHints& hints);
Prepared prepare(const UpdateScales& op, const LayoutHints& hints);
Prepared prepare(const Average& op, const LayoutHints& hints);

Prepared prepare_reorder(const Reorder& op);
void round_factors(const float* from, std::int64_t count, float* to);
Prepared prepare_winograd(const ConvForward& op, DataType type);
Prepared prepare_winograd(const ConvBackwardData& op, DataType type);
Prepared prepare_winograd(const ConvBackwardWeights& op, DataType type);
Prepared prepare_depthwise(const ConvForward& op, DataType type);
Prepared prepare_depthwise(const ConvBackwardData& op, DataType type);
Prepared prepare_depthwise(const ConvBackwardWeights& op, DataType type);
Prepared prepare_few_maps(const ConvBackwardWeights& op, DataType type);
Prepared prepare_dense(const InnerProductForward& op, DataType type);
Prepared prepare_dense(const InnerProductBackwardData& op, DataType type);
Prepared prepare_pointwise(const ConvBackwardWeights& op, DataType type);

double measure_peak_flops(int threads, DataType factors);
double measure_copy_bandwidth(int threads);
}  // namespace own

}  // namespace convnet::cpu
