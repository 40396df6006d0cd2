// A few threads that share out pieces of work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace convnet {

/// Owns its threads. One call of run() at a time.
class WorkerPool {
 public:
  /// `threads` > 0, the caller of run() being one of them; 0: as many as there are cores.
  explicit WorkerPool(int threads);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool();

  /// Calls work(0) … work(count - 1), each once, on all threads, and waits. If some throw, the exception of
  /// the lowest number is thrown again, whatever the number of threads; work not yet begun is left out.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convnet
