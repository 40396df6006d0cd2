// The clock that measures waiting and work.
#pragma once

#include <chrono>

namespace convnet {

using Clock = std::chrono::steady_clock;

/// Returns the seconds from `start` to now.
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace convnet
