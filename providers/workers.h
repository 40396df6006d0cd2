// A pool of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace convnet {

/// Owns a few threads that do jobs, which consist of numbered calls. Jobs form a queue: threads that find no
/// call left in a job go on with the next one, while others finish theirs.
class WorkerPool {
 public:
  /// Makes a pool of `threads` threads; 0: as many as there are cores.
  explicit WorkerPool(int threads);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  /// Jobs must have been destroyed.
  ~WorkerPool();

  /// A job in the queue of a pool. Its calls may use what lives as long as it.
  class Job {
   public:
    Job() = default;
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    /// Drops calls that have not begun, and waits for the others.
    virtual ~Job() = default;
    /// Returns whether wait() would return at once.
    virtual bool done() const = 0;
    /// Waits for all calls. If some of them threw, rethrows the exception of the lowest number, whatever the
    /// number of threads; calls that had not begun then were skipped.
    virtual void wait() = 0;
  };

  /// Puts the calls work(0) … work(count - 1) at the end of the queue. Each is made once, by any thread.
  std::unique_ptr<Job> begin(std::int64_t count, std::function<void(std::int64_t)> work);
  /// Makes these calls and waits for them, as Job::wait() does.
  void run(std::int64_t count, std::function<void(std::int64_t)> work);

 private:
  struct Queue;
  class QueuedJob;
  std::unique_ptr<Queue> queue_;
};

}  // namespace convnet
