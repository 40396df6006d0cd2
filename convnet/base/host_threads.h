// The number of threads that this process may start.
#pragma once

#include <string>

namespace convnet {

/// Returns the end of a message: which limits on threads there are, and how to need fewer threads.
std::string thread_limits();

/// Throws DeviceError if this process cannot have `count` more threads. It finds out by starting them, each
/// of which waits for the others. Call it before OpenMP starts threads: OpenMP ends the program if it cannot.
void check_threads(int count);

}  // namespace convnet
