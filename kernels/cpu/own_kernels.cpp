// The entry to the own kernels of one instruction set. CMake defines CONVNET_OWN_KERNELS as its name.
#include "kernels/cpu/own_kernels.h"

#include <concepts>
#include <stdexcept>
#include <variant>

namespace convnet::cpu {
namespace {

Prepared prepare_own(const OpDesc& op, const LayoutHints& hints, DataType type) {
  return std::visit(
      [&]<class Op>(const Op& desc) -> Prepared {
        if constexpr (OnednnOp<Op>)
          throw std::logic_error(op_name(op) + " has no kernel of our own");
        else if constexpr (std::same_as<Op, LoadImages>)
          return own::prepare(desc, hints, type);
        else
          return own::prepare(desc, hints);
      },
      op);
}

Prepared prepare_own_winograd(const OpDesc& op, DataType type) {
  return std::visit(
      [&]<class Op>(const Op& desc) -> Prepared {
        if constexpr (requires { own::prepare_winograd(desc, type); })
          return own::prepare_winograd(desc, type);
        else
          return nullptr;
      },
      op);
}

Prepared prepare_own_direct(const OpDesc& op, DataType type) {
  return std::visit(
      [&]<class Op>(const Op& desc) -> Prepared {
        Prepared own;
        if constexpr (requires { own::prepare_depthwise(desc, type); })
          own = own::prepare_depthwise(desc, type);
        if constexpr (requires { own::prepare_few_maps(desc, type); })
          if (!own) own = own::prepare_few_maps(desc, type);
        if constexpr (requires { own::prepare_dense(desc, type); })
          if (!own) own = own::prepare_dense(desc, type);
        if constexpr (requires { own::prepare_pointwise(desc, type); })
          if (!own) own = own::prepare_pointwise(desc, type);
        return own;
      },
      op);
}

}  // namespace

extern "C" const OwnKernels CONVNET_OWN_KERNELS;  // C linkage: CMake keeps the symbol by its name
const OwnKernels CONVNET_OWN_KERNELS = {
    prepare_own,        prepare_own_winograd,    prepare_own_direct,         own::prepare_reorder,
    own::round_factors, own::measure_peak_flops, own::measure_copy_bandwidth};

}  // namespace convnet::cpu
