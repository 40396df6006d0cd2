// The forms in which operations run on NVIDIA GPUs: how their arguments lie, and how much workspace they get.
// Neither depends on a device or a library, so that plans are made, and are the same, on every machine.
#pragma once

#include "kernels/ops.h"
#include "kernels/target.h"

namespace convnet::cuda {

/// Returns the type of factors and activations where products compute in `precision`.
inline DataType product_type(Precision precision) {
  return precision == Precision::bf16 ? DataType::bf16 : DataType::f32;
}

/// Returns the form of `op`; see Target::form for the contract. The workspace of own kernels is exact. That
/// of operations which a library does is a budget: what is chosen later stays within it.
OpForm form(const OpDesc& op, const LayoutHints& hints, Precision precision);

}  // namespace convnet::cuda
