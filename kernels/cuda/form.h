// The forms in which operations run on NVIDIA GPUs: the layouts of their arguments, and the sizes of their
// workspaces. They depend on no device or library, so that every machine can make plans, and makes the same
// ones.
#pragma once

#include "kernels/ops.h"
#include "kernels/target.h"

namespace convnet::cuda {

/// Returns the type of factors and activations where products compute in `precision`.
inline DataType product_type(Precision precision) {
  return precision == Precision::bf16 ? DataType::bf16 : DataType::f32;
}

/// Returns the form of `op`; see Target::form for the contract. The workspace of our own kernels is exact.
/// For an operation of a library it is a budget, within which an implementation is chosen later.
OpForm form(const OpDesc& op, const LayoutHints& hints, Precision precision);

}  // namespace convnet::cuda
