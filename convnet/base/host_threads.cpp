#include "convnet/base/host_threads.h"

#include <exception>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "convnet/base/error.h"

namespace convnet {

std::string thread_limits() {
  return "ulimit -u, ulimit -v or pids.max of the control group is the "
         "limit: raise it, or use fewer --threads and --decode-threads";
}

void check_threads(int count) {
  std::latch all_started(1);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  bool started = true;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&] { all_started.wait(); });
  } catch (const std::exception&) {
    started = false;
  }
  all_started.count_down();
  const std::size_t have = threads.size();
  for (std::thread& thread : threads) thread.join();
  if (!started)
    throw DeviceError("this run needs " + std::to_string(count) + " more threads, but only " +
                      std::to_string(have) + " can be started; " + thread_limits());
}

}  // namespace convnet
