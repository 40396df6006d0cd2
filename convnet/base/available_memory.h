// Memory that this process can still use on the host.
#pragma once

#include <cstdint>
#include <string>

namespace convnet {

/// Bytes that can be allocated and used without swapping: what the kernel estimates (MemAvailable, so caches
/// of files count as free), or less where this process's control group (versions 1 and 2) or one above it has
/// a limit. The files are looked for below `root`: tests make their own.
std::int64_t available_memory(const std::string& root = "");

}  // namespace convnet
