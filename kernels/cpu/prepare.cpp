#include "kernels/cpu/prepare.h"

#include <omp.h>

#include <variant>

#include "convnet/base/error.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/own_kernels.h"
#include "kernels/cpu/relayout.h"

namespace convnet::cpu {

extern "C" const OwnKernels convnet_own_kernels_base;
extern "C" const OwnKernels convnet_own_kernels_v3, convnet_own_kernels_v4, convnet_own_kernels_v4_bf16;

const OwnKernels& own_kernels([[maybe_unused]] InstructionSet set) {
#if defined(CONVNET_KERNELS_v4_bf16)
  if (set >= InstructionSet::avx512_core_bf16) return convnet_own_kernels_v4_bf16;
#endif
#if defined(CONVNET_KERNELS_v4)
  if (set >= InstructionSet::avx512_core) return convnet_own_kernels_v4;
#endif
#if defined(CONVNET_KERNELS_v3)
  if (set >= InstructionSet::avx2) return convnet_own_kernels_v3;
#endif
#if defined(CONVNET_KERNELS_base)
  return convnet_own_kernels_base;
#else
  throw DeviceError("cpu: this program was compiled for processors with " +
                    name_of(lowest_compiled_instruction_set()) + " or later ones, and cannot compute with " +
                    name_of(set) + "; `scripts/build` compiles it for all processors");
#endif
}

namespace {

/// Prepares a convolution with our own kernels. Returns null if oneDNN is faster, and for other operations.
Prepared prepare_winograd(InstructionSet set, const OpDesc& op, DataType type) {
  // With AMX, the library's direct convolutions of bf16 numbers are faster.
  if (type == DataType::bf16 && set >= InstructionSet::avx512_core_amx) return nullptr;
  return own_kernels(set).prepare_winograd(op, type);
}

/// Returns whether `op` is a product of numbers of `type` that this processor has no instructions for.
bool lacks_products(InstructionSet set, const OpDesc& op, DataType type) {
  if (type != DataType::bf16 || set >= InstructionSet::avx512_core_bf16) return false;
  return std::visit(
      []<class Op>(const Op& desc) {
        // Inner products in parts are computed in f32 everywhere.
        if constexpr (requires { desc.g.parts; }) return desc.g.parts == 0;
        return OnednnProduct<Op>;
      },
      op);
}

/// Returns whether there is a layout of f32 with the same order of elements.
bool has_f32_layout(const TensorDesc& tensor) {
  return tensor.plain() || !with_type(tensor, DataType::f32).plain();
}

/// Prepares a reorder between tensors of bf16, or of bf16 and f32, by a reorder of f32 and conversions of our
/// own, which keep subnormal numbers. Returns null for other reorders, and for those of weights to the orders
/// that only bf16 has.
Prepared prepare_reorder_in_f32(const Reorder& op) {
  const bool any_bf16 = op.from.type == DataType::bf16 || op.to.type == DataType::bf16;
  if (!any_bf16 || same_layout(op.from, op.to) || !has_f32_layout(op.from) || !has_f32_layout(op.to))
    return nullptr;
  const Reorder inner{with_type(op.from, DataType::f32), with_type(op.to, DataType::f32)};
  return std::make_shared<RelaidOp>(op, prepare(inner, {}), std::vector{op.from, op.to});
}

/// Returns the threads that the library should divide an operation among. On one thread, small operations
/// take a few microseconds. Waking a second one takes as long, and up to half a millisecond if other programs
/// keep the cores busy.
int useful_threads(const OpDesc& op) {
  constexpr double kFewFlops = 5e5;
  constexpr std::int64_t kFewElements = 1 << 16;
  const auto* const reorder = std::get_if<Reorder>(&op);
  const bool few = reorder != nullptr ? element_count(reorder->from.dims) < kFewElements
                                      : op_flops(op) > 0 && op_flops(op) < kFewFlops;
  return few ? 1 : omp_get_max_threads();
}

}  // namespace

bool fuses(const OpDesc& op, DataType type) {
  return std::holds_alternative<BatchNormForward>(op) || std::holds_alternative<BatchNormBackwardData>(op) ||
         std::holds_alternative<BatchNormBackwardWeights>(op) ||
         prepare_winograd(use_instruction_set(), op, type) != nullptr;  // null if lacks_products()
}

Prepared prepare(const OpDesc& op, const LayoutHints& hints, DataType type) {
  const InstructionSet set = use_instruction_set();
  if (Prepared direct = own_kernels(set).prepare_direct(op, type)) return direct;
  if (lacks_products(set, op, type)) return prepare_in_f32(op, hints);
  if (Prepared winograd = prepare_winograd(set, op, type)) return winograd;
  if (const auto* reorder = std::get_if<Reorder>(&op)) {
    if (Prepared own = own_kernels(set).prepare_reorder(*reorder)) return own;
    if (Prepared converted = prepare_reorder_in_f32(*reorder)) return converted;
  }
  return std::visit(
      [&]<class Op>(const Op& desc) -> Prepared {
        if constexpr (OnednnOp<Op>) {
          const TeamSize team(useful_threads(op));
          if constexpr (OnednnProduct<Op>)
            return onednn::prepare(desc, hints, type);
          else
            return onednn::prepare(desc, hints);
        } else
          return own_kernels(set).prepare(op, hints, type);
      },
      op);
}

}  // namespace convnet::cpu
