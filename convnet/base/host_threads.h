// The number of threads that this process may start.
#pragma once

#include <string>

namespace convnet {

/// The end of a message: it names the limits on threads and how to need fewer.
std::string thread_limits();

/// Throws DeviceError if this process cannot have `count` more threads. It tries this by starting them,
/// each waiting for the others. OpenMP ends the program if it cannot start one, so this must come first.
void check_threads(int count);

}  // namespace convnet
