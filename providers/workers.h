// A pool of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace convnet {

/// Owns a few threads that work on numbered pieces of work. Only one call of run() is allowed at a time.
class WorkerPool {
 public:
  /// Makes a pool of `threads` threads, one of which is the caller of run(); 0: as many as there are cores.
  explicit WorkerPool(int threads);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool();

  /// Calls work(0) … work(count - 1), each once, distributed over the threads, and waits for them. If some of
  /// them throw, rethrows the exception of the lowest number, whatever the number of threads; work not yet
  /// begun is skipped.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convnet
