#include "kernels/cpu/prepare.h"

#include <variant>

#include "kernels/cpu/own_kernels.h"

namespace convnet::cpu {

#if defined(__x86_64__)
extern "C" const OwnKernels convnet_own_kernels_v3, convnet_own_kernels_v4, convnet_own_kernels_v4_bf16;
const OwnKernels& own_kernels(InstructionSet set) {
  if (set >= InstructionSet::avx512_core_bf16) return convnet_own_kernels_v4_bf16;
  return set >= InstructionSet::avx512_core ? convnet_own_kernels_v4 : convnet_own_kernels_v3;
}
#else
extern "C" const OwnKernels convnet_own_kernels_base;
const OwnKernels& own_kernels(InstructionSet) { return convnet_own_kernels_base; }
#endif

namespace {

/// Prepares a convolution with our own kernels. Returns null if oneDNN is faster, and for other operations.
Prepared prepare_winograd(InstructionSet set, const OpDesc& op, DataType type) {
  // With AMX, the library's direct convolutions of bf16 numbers are faster.
  if (type == DataType::bf16 && set >= InstructionSet::avx512_core_amx) return nullptr;
  return own_kernels(set).prepare_winograd(op, type);
}

}  // namespace

bool fuses(const OpDesc& op, DataType type) {
  return std::holds_alternative<BatchNormForward>(op) || std::holds_alternative<BatchNormBackwardData>(op) ||
         prepare_winograd(use_instruction_set(), op, type) != nullptr;
}

Prepared prepare(const OpDesc& op, const LayoutHints& hints, DataType type) {
  const InstructionSet set = use_instruction_set();
  if (Prepared winograd = prepare_winograd(set, op, type)) return winograd;
  if (const auto* gradient = std::get_if<ConvBackwardWeights>(&op)) {
    if (Prepared own = own_kernels(set).prepare_depthwise(*gradient, type)) return own;
  }
  if (const auto* reorder = std::get_if<Reorder>(&op)) {
    if (Prepared own = own_kernels(set).prepare_reorder(*reorder)) return own;
  }
  return std::visit(
      [&]<class Op>(const Op& desc) -> Prepared {
        if constexpr (OnednnProduct<Op>)
          return onednn::prepare(desc, hints, type);
        else if constexpr (OnednnOp<Op>)
          return onednn::prepare(desc, hints);
        else
          return own_kernels(set).prepare(op, hints, type);
      },
      op);
}

}  // namespace convnet::cpu
