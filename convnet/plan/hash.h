// A hash of a plan, by which processes find out whether they have the same one.
#pragma once

#include <cstdint>
#include <string>

#include "convnet/plan/plan.h"

namespace convnet {

/// Returns a hash (FNV-1a, 64 bits) of everything that the processes of a run must agree on: kind of device
/// and precision, phase and images, buffers (names, devices, shapes, types, layouts, and places of persistent
/// ones), tasks (operations with all of their numbers, arguments, order, devices, streams, dependencies),
/// inputs and costs. It leaves out what may differ between processes because it depends on the library and
/// the number of threads: algorithms, workspaces, and places of transient buffers. Initial weights and
/// learning rates are not part of a plan.
std::uint64_t plan_hash(const Plan& plan);

/// Returns the hash as 16 hexadecimal digits.
std::string hash_text(std::uint64_t hash);

}  // namespace convnet
