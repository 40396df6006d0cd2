#include "providers/prefetch.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace convnet {

struct Prefetcher::State {
  using Load = std::function<std::shared_ptr<const DataBatch>(const LoadRequest&)>;

  struct Result {
    std::shared_ptr<const DataBatch> batch;
    std::exception_ptr error;
  };

  explicit State(Load load_batch) : load(std::move(load_batch)) {}

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stop || (wanted && !result); });
      if (stop) return;
      const LoadRequest request = *wanted;
      lock.unlock();
      Result loaded;
      try {
        loaded.batch = load(request);
      } catch (...) {
        loaded.error = std::current_exception();
      }
      lock.lock();
      // Another request may have replaced this one meanwhile.
      if (wanted == request) result = std::move(loaded);
      changed.notify_all();
    }
  }

  /// Under the mutex.
  void want(const LoadRequest& request) {
    if (wanted == request) return;
    wanted = request;
    result.reset();
    changed.notify_all();
  }

  const Load load;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::optional<LoadRequest> wanted;  // until it is taken
  std::optional<Result> result;       // of `wanted`
  bool stop = false;
  std::thread loader;
};

Prefetcher::Prefetcher(std::function<std::shared_ptr<const DataBatch>(const LoadRequest&)> load)
    : state_(std::make_unique<State>(std::move(load))) {
  state_->loader = std::thread([state = state_.get()] { state->run(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  state_->loader.join();
}

void Prefetcher::start(const LoadRequest& request) {
  const std::lock_guard lock(state_->mutex);
  state_->want(request);
}

std::shared_ptr<const DataBatch> Prefetcher::take(const LoadRequest& request) {
  State::Result taken;
  {
    std::unique_lock lock(state_->mutex);
    state_->want(request);
    state_->changed.wait(lock, [this] { return state_->result.has_value(); });
    taken = *std::exchange(state_->result, std::nullopt);
    state_->wanted.reset();
  }
  if (taken.error) std::rethrow_exception(taken.error);
  return std::move(taken.batch);
}

}  // namespace convnet
