// Memory that this process can still use on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace convnet {

/// Returns the bytes that can be used without swapping: the kernel's estimate (MemAvailable, so caches
/// of files count as free), or less if this process's control group (versions 1 and 2) or one above it has
/// a limit. The files are read below `root`, so that tests can provide their own.
std::int64_t available_memory(const std::string& root = "");

/// Lets all threads share one heap if the address space is limited (ulimit -v): a heap for each of them takes
/// 64 MiB of it. Call it before threads are started.
void share_heap_if_limited();

/// Returns whether `bytes` more bytes of address space can be had. Only a limit (ulimit -v) is tested,
/// because without one the memory itself runs out first.
bool has_address_space(std::size_t bytes);

}  // namespace convnet
