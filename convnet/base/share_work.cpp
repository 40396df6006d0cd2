#include "convnet/base/share_work.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

namespace convnet {

void share_work(std::size_t count, int threads, const std::function<void(std::size_t)>& work,
                const StartThread& start) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  std::size_t failed = count;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        // All calls of lower numbers have begun, and may still fail.
        const std::lock_guard lock(mutex);
        if (i < failed) error = std::current_exception();
        failed = i < failed ? i : failed;
        next = count;
      }
    }
  };
  std::vector<std::thread> others;
  try {
    others.reserve(count);
    for (std::size_t t = 1; t < count && static_cast<int>(t) < threads; ++t)
      others.push_back(start ? start(run) : std::thread(run));
  } catch (const std::exception&) {
    // The threads that there are do the rest.
  }
  run();
  for (std::thread& other : others) other.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace convnet
