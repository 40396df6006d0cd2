// Fusions of tasks that work on the same tensor one after the other.
#pragma once

#include "convnet/plan/plan.h"

namespace convnet {

/// Fuses two tasks of a plan for training into one if the target can do their work in one pass over memory
/// (Target::fuses). Call it before find_dependencies(). It fuses
/// - a sum of two tensors with the task that makes one of them, if nobody else reads that one;
/// - a relu with the batch norm into which its input, a sum, has been fused, if nobody else reads that;
/// - the moments of a convolution's output with the convolution;
/// - the running statistics of a batch norm with its moments, or with the task that merges those of replicas;
/// - the mask of a relu, and the sum of two gradients before it, with the first sums of a batch norm below.
/// Adds a line to Plan::rewrites for each pair of layers.
void fuse_tasks(Plan& plan, const Graph& graph, const Target& target);

}  // namespace convnet
