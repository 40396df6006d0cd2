// A number that says whether two plans are the same.
#pragma once

#include <cstdint>
#include <string>

#include "convnet/plan/plan.h"

namespace convnet {

/// Returns a hash of everything that processes which follow one plan must agree on: kind of device and
/// precision, phase and images, all buffers (names, devices, shapes, types, layouts, places), all tasks
/// (operations with all of their numbers, arguments, order, devices, streams, dependencies, workspaces),
/// inputs and costs. The algorithms that a library chooses are left out: they belong to the machine. FNV-1a,
/// 64 bits; equal on every platform.
std::uint64_t plan_hash(const Plan& plan);

/// The hash as 16 hexadecimal digits.
std::string hash_text(std::uint64_t hash);

}  // namespace convnet
