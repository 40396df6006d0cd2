// Tests ask the emulated devices by these functions what they did.
#pragma once

#include <set>
#include <typeindex>

namespace convnet::test {

/// Returns the kernels that have been started since the last call.
std::set<std::type_index> take_started_kernels();

}  // namespace convnet::test
