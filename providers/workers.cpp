#include "providers/workers.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "convnet/base/cores.h"

namespace convnet {

struct WorkerPool::Queue {
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  /// Joins the threads, also if not all of them could be started.
  ~Queue() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    has_work.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void serve();

  std::mutex mutex;  // guards what follows, and the members of jobs
  std::condition_variable has_work, has_ended;
  std::deque<QueuedJob*> jobs;  ///< jobs with calls that have not begun
  bool stop = false;
  std::vector<std::thread> threads;
};

class WorkerPool::QueuedJob final : public Job {
 public:
  QueuedJob(Queue& queue, std::int64_t count, std::function<void(std::int64_t)> work)
      : queue_(queue), work_(std::move(work)), count_(count) {
    if (count == 0) return;
    {
      const std::lock_guard lock(queue_.mutex);
      queue_.jobs.push_back(this);
    }
    queue_.has_work.notify_all();
  }
  QueuedJob(const QueuedJob&) = delete;
  QueuedJob& operator=(const QueuedJob&) = delete;
  ~QueuedJob() override {
    std::unique_lock lock(queue_.mutex);
    drop_rest();
    wait_for_end(lock);
  }

  bool done() const override {
    const std::lock_guard lock(queue_.mutex);
    return ended();
  }

  void wait() override {
    std::unique_lock lock(queue_.mutex);
    wait_for_end(lock);
    if (error_) std::rethrow_exception(error_);
  }

  /// Makes the next call. The caller, a thread of the pool, holds `lock`, which is released meanwhile.
  /// Numbers are handed out in order, so all below one that failed were begun before it and will end.
  void call_next(std::unique_lock<std::mutex>& lock) {
    const std::int64_t mine = next_++;
    if (next_ == count_) std::erase(queue_.jobs, this);
    ++busy_;
    lock.unlock();
    std::exception_ptr thrown;
    try {
      work_(mine);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    --busy_;
    if (thrown && (!error_ || mine < failed_)) {
      error_ = thrown;
      failed_ = mine;
      drop_rest();
    }
    if (ended()) queue_.has_ended.notify_all();
  }

 private:
  // The callers of these functions hold the mutex.
  bool ended() const { return next_ == count_ && busy_ == 0; }
  void drop_rest() {
    if (next_ < count_) std::erase(queue_.jobs, this);
    next_ = count_;
  }
  void wait_for_end(std::unique_lock<std::mutex>& lock) {
    queue_.has_ended.wait(lock, [this] { return ended(); });
  }

  Queue& queue_;
  const std::function<void(std::int64_t)> work_;
  const std::int64_t count_;
  std::int64_t next_ = 0, failed_ = 0;
  int busy_ = 0;
  std::exception_ptr error_;
};

void WorkerPool::Queue::serve() {
  std::unique_lock lock(mutex);
  for (;;) {
    has_work.wait(lock, [this] { return stop || !jobs.empty(); });
    if (stop) return;
    jobs.front()->call_next(lock);
  }
}

WorkerPool::WorkerPool(int threads) : queue_(std::make_unique<Queue>()) {
  if (threads == 0) threads = usable_cores();
  for (int i = 0; i < threads; ++i) queue_->threads.emplace_back([queue = queue_.get()] { queue->serve(); });
}

WorkerPool::~WorkerPool() = default;

std::unique_ptr<WorkerPool::Job> WorkerPool::begin(std::int64_t count,
                                                   std::function<void(std::int64_t)> work) {
  return std::make_unique<QueuedJob>(*queue_, count, std::move(work));
}

void WorkerPool::run(std::int64_t count, std::function<void(std::int64_t)> work) {
  begin(count, std::move(work))->wait();
}

}  // namespace convnet
