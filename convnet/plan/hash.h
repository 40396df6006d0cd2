// A number that says whether two plans are the same.
#pragma once

#include <cstdint>
#include <string>

#include "convnet/plan/plan.h"

namespace convnet {

/// Returns a hash of all of the plan that processes which follow it must agree on: kind of device and
/// precision, phase and images, buffers (names, devices, shapes, types, layouts, places of those that outlive
/// a step), tasks (operations with all of their numbers, arguments, order, devices, streams, dependencies),
/// inputs and costs. What a process may settle for itself is left out: algorithms, workspaces, and the places
/// of what lives during a step, which depend on the library and on the number of threads. Initial weights and
/// learning rates are not in a plan. FNV-1a, 64 bits.
std::uint64_t plan_hash(const Plan& plan);

/// The hash as 16 hexadecimal digits.
std::string hash_text(std::uint64_t hash);

}  // namespace convnet
