// Reorders with oneDNN; a reorder between equal layouts is a copy.
#include <algorithm>

#include "kernels/cpu/onednn.h"

namespace convnet::cpu::onednn {
namespace {

/// Returns the descriptor of a tensor. A plain tensor gets the dims of `other` if that is not plain: the same
/// bytes may be (N,C,H,W) or (N,C*H*W), and the weights of grouped convolutions have a fifth dimension in
/// oneDNN.
dnnl::memory::desc seen_as(const TensorDesc& tensor, const TensorDesc& other) {
  if (!tensor.plain() || other.plain()) return to_dnnl(tensor);
  const auto blocking = blocking_of(to_dnnl(other));
  return to_dnnl(TensorDesc{blocking ? blocking->dims : tensor.dims, tensor.type, nullptr});
}

}  // namespace

Prepared prepare(const Reorder& op, const LayoutHints&) {
  if (element_count(op.from.dims) != element_count(op.to.dims))
    throw DeviceError(describe(op) + ": the numbers of elements differ");
  if (same_layout(op.from, op.to)) {
    const std::int64_t bytes = op.from.bytes();
    return std::make_shared<KernelOp>(
        std::vector<TensorDesc>{op.from, op.to},
        [bytes](std::span<std::byte* const> p) { std::copy_n(p[0], bytes, p[1]); });
  }
  return checked(op, [&]() -> Prepared {
    const dnnl::reorder::primitive_desc pd(cpu_engine(), seen_as(op.from, op.to), cpu_engine(),
                                           seen_as(op.to, op.from), attributes());
    return std::make_shared<DnnlOp>(std::vector<TensorDesc>{op.from, op.to}, pd, dnnl::reorder(pd),
                                    std::vector<int>{DNNL_ARG_FROM, DNNL_ARG_TO});
  });
}

}  // namespace convnet::cpu::onednn
