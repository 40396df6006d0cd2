#include "providers/prefetch.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace convnet {

struct Prefetcher::State {
  using Load = std::function<std::shared_ptr<const DataBatch>(const LoadRequest&)>;

  struct Result {
    LoadRequest request;
    std::shared_ptr<const DataBatch> batch;
    std::exception_ptr error;
  };

  State(Load load_batch, std::size_t most_ready) : load(std::move(load_batch)), ahead(most_ready) {}

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stop || (!wanted.empty() && ready.size() < ahead); });
      if (stop) return;
      loading = wanted.front();
      wanted.pop_front();
      Result loaded{*loading, nullptr, nullptr};
      lock.unlock();
      try {
        loaded.batch = load(loaded.request);
      } catch (...) {
        loaded.error = std::current_exception();
      }
      lock.lock();
      // The request may have been dropped meanwhile.
      if (std::exchange(loading, std::nullopt)) {
        if (loaded.batch && !loaded.batch->last) {
          LoadRequest next = loaded.request;
          next.first += next.count;
          wanted.push_front(next);
        }
        ready.push_back(std::move(loaded));
      }
      changed.notify_all();
    }
  }

  // The queue consists of the pieces that are ready, the one that is loading, and the requests that wait. The
  // callers of these functions hold the mutex.
  const LoadRequest* front() const {
    return !ready.empty()    ? &ready.front().request
           : loading         ? &*loading
           : !wanted.empty() ? &wanted.front()
                             : nullptr;
  }
  void forget_front() {
    if (!ready.empty())
      ready.pop_front();
    else if (loading)
      loading.reset();
    else
      wanted.pop_front();
  }
  bool in_line(const LoadRequest& request) const {
    return std::any_of(ready.begin(), ready.end(), [&](const Result& r) { return r.request == request; }) ||
           loading == request || std::find(wanted.begin(), wanted.end(), request) != wanted.end();
  }

  const Load load;
  const std::size_t ahead;
  mutable std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::deque<Result> ready;
  std::optional<LoadRequest> loading;
  std::deque<LoadRequest> wanted;
  bool stop = false;
  std::thread loader;
};

Prefetcher::Prefetcher(std::function<std::shared_ptr<const DataBatch>(const LoadRequest&)> load,
                       std::size_t ahead)
    : state_(std::make_unique<State>(std::move(load), ahead)) {
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
  if (state_->in_line(request)) return;
  state_->wanted.push_back(request);
  state_->changed.notify_all();
}

std::shared_ptr<const DataBatch> Prefetcher::take(const LoadRequest& request) {
  State::Result taken;
  {
    std::unique_lock lock(state_->mutex);
    while (state_->front() && *state_->front() != request) state_->forget_front();
    if (!state_->front()) state_->wanted.push_back(request);
    state_->changed.notify_all();
    state_->changed.wait(lock, [this] { return !state_->ready.empty(); });
    taken = std::move(state_->ready.front());
    state_->ready.pop_front();
  }
  state_->changed.notify_all();
  if (taken.error) std::rethrow_exception(taken.error);
  return std::move(taken.batch);
}

std::shared_ptr<const DataBatch> Prefetcher::peek(const LoadRequest& request) const {
  const std::lock_guard lock(state_->mutex);
  return !state_->ready.empty() && state_->ready.front().request == request ? state_->ready.front().batch
                                                                            : nullptr;
}

}  // namespace convnet
