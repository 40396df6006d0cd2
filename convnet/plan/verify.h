// Proves that a plan computes the same in every order that its dependencies allow.
#pragma once

#include "convnet/plan/plan.h"

namespace convnet {

/// Checks a plan (docs/design.md lists the properties). Throws std::logic_error that describes the first
/// violation.
void verify(const Plan& plan, const Graph& graph);

}  // namespace convnet
