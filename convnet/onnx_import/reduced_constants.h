// Computes operators of constants that exporters write for weights that a model itself normalises.
#pragma once

#include "convnet/onnx_import/operators.h"

namespace convnet {

/// ReduceSum, ReduceProd and ReduceMean of a constant.
ConstantPtr folded_reduce(const OperatorCall& call);

/// BatchNormalization of a constant, by statistics that are constants, too.
ConstantPtr folded_batch_norm(const OperatorCall& call);

}  // namespace convnet
