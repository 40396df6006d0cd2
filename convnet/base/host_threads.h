// Threads that this process may start.
#pragma once

#include <string>

namespace convnet {

/// Names what limits threads, and how to need fewer, for the end of a message.
std::string thread_limits();

/// Throws DeviceError if this process cannot have `count` threads more than it has: found by starting them,
/// each to wait for the others. OpenMP ends the program where it cannot start one, so it is asked before.
void check_threads(int count);

}  // namespace convnet
