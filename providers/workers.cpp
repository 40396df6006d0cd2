#include "providers/workers.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "convnet/base/cores.h"

namespace convnet {

struct WorkerPool::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Joins the threads, also if not all of them could be started.
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  /// Works on the job until nothing of it is left. Numbers are handed out in order, so all below one that
  /// failed were begun before it and will end.
  void help(std::unique_lock<std::mutex>& lock) {
    while (next < count) {
      const std::int64_t mine = next++;
      ++busy;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        (*work)(mine);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      --busy;
      if (thrown && (!error || mine < failed)) {
        error = thrown;
        failed = mine;
        next = count;
      }
    }
    if (busy == 0) changed.notify_all();
  }

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stop || next < count; });
      if (stop) return;
      help(lock);
    }
  }

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  const std::function<void(std::int64_t)>* work = nullptr;
  std::int64_t count = 0, next = 0, failed = 0;
  int busy = 0;
  std::exception_ptr error;
  bool stop = false;
  std::vector<std::thread> threads;
};

WorkerPool::WorkerPool(int threads) : state_(std::make_unique<State>()) {
  if (threads == 0) threads = usable_cores();
  for (int i = 1; i < threads; ++i) state_->threads.emplace_back([state = state_.get()] { state->serve(); });
}

WorkerPool::~WorkerPool() = default;

void WorkerPool::run(std::int64_t count, const std::function<void(std::int64_t)>& work) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.work = &work;
  s.count = count;
  s.next = 0;
  s.error = nullptr;
  s.changed.notify_all();
  s.help(lock);
  s.changed.wait(lock, [&] { return s.busy == 0; });
  s.count = s.next = 0;
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace convnet
