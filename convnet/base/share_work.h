// Work that several threads share.
#pragma once

#include <cstddef>
#include <functional>

namespace convnet {

/// Calls work(0), work(1), … work(count - 1), each once, in up to `threads` threads, one of which is the
/// caller's. The calls begin in this order. The caller's thread does the work of threads that cannot be
/// started. After an error no more calls begin, and the error of the lowest number is thrown, whatever the
/// timing.
void share_work(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace convnet
