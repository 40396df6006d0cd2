// Fusions of tasks that follow each other on the same numbers.
#pragma once

#include "convnet/plan/plan.h"

namespace convnet {

/// Fuses tasks of a plan for training whose order has not been found yet, where the target can do the work of
/// two in one pass over memory (Target::fuses):
/// - a sum of two tensors with the task that makes one of them, if nobody else reads that one;
/// - a relu with the batch norm that makes and adds up its input, if nobody else reads that;
/// - the moments of a convolution's output with the convolution.
/// Adds a line to Plan::rewrites for each pair of layers.
void fuse_tasks(Plan& plan, const Graph& graph, const Target& target);

}  // namespace convnet
