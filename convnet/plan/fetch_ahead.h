// Copies between devices that begin before their pass.
#pragma once

#include "convnet/plan/plan.h"

namespace convnet {

/// Moves the copies that a layer's forward needs in a pass, and whose sources exist by then, to before the
/// backward of that layer in the previous pass: the bytes of the next microbatch travel while devices compute
/// with this one. One microbatch more is then in memory. find_dependencies() must follow.
void fetch_ahead(Plan& plan);

}  // namespace convnet
