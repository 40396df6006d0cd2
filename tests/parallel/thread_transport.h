// A run of several processes within one: each is a thread of the test, and messages are copies of memory.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "convnet/runtime/processes.h"

namespace convnet::test {

/// Returns a transport for each of `count` processes, which live as long as any of them.
std::vector<std::unique_ptr<Transport>> thread_transports(int count);

/// Calls `process` for each of `count` processes, in a thread of its own. Throws what the first of them threw
/// once all have ended.
void run_processes(int count, const std::function<void(Processes&)>& process, double stall_seconds = 60);

}  // namespace convnet::test
