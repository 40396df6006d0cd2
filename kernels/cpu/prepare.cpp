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

Prepared prepare(const OpDesc& op, const LayoutHints& hints, DataType type) {
  const InstructionSet set = use_instruction_set();
  // With AMX, the library's direct convolutions of bf16 numbers are faster.
  if (type == DataType::f32 || set < InstructionSet::avx512_core_amx) {
    if (Prepared winograd = own_kernels(set).prepare_winograd(op, type)) return winograd;
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
