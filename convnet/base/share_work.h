// Work that several threads share.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

namespace convnet {

/// Starts a thread that does some work.
using StartThread = std::function<std::thread(std::function<void()>)>;

/// Calls work(0), work(1), … work(count - 1), each once, in up to `threads` threads, one of which is the
/// caller's. The calls begin in this order. The caller's thread does the work of threads that cannot be
/// started. After an error no more calls begin, and the error of the lowest number is thrown, whatever the
/// timing. Tests give another `start`.
void share_work(std::size_t count, int threads, const std::function<void(std::size_t)>& work,
                const StartThread& start = {});

}  // namespace convnet
