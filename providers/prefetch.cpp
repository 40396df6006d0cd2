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
  struct Begun {
    LoadRequest request;
    std::unique_ptr<PieceInProgress> piece;
    std::exception_ptr error;                         ///< thrown instead
    std::shared_ptr<const DataBatch> seen = nullptr;  ///< what peek() got of `piece`

    std::shared_ptr<const DataBatch> wait() {
      if (error) std::rethrow_exception(error);
      return seen ? std::move(seen) : piece->wait();
    }
  };

  State(Begin begin_piece, std::size_t most_begun) : begin(std::move(begin_piece)), ahead(most_begun) {}

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stop || (!wanted.empty() && begun.size() < ahead); });
      if (stop) return;
      beginning = wanted.front();
      wanted.pop_front();
      Begun next{*beginning, nullptr, nullptr};
      lock.unlock();
      try {
        next.piece = begin(next.request);
      } catch (...) {
        next.error = std::current_exception();
      }
      lock.lock();
      // The request may have been dropped meanwhile.
      if (std::exchange(beginning, std::nullopt)) {
        if (next.piece && !next.piece->last()) {
          LoadRequest following = next.request;
          following.first += following.count;
          wanted.push_front(following);
        }
        begun.push_back(std::move(next));
      }
      changed.notify_all();
    }
  }

  // The queue consists of the pieces that have begun, the one that is beginning, and the requests that wait.
  // The callers of these functions hold the mutex.
  const LoadRequest* front() const {
    return !begun.empty()    ? &begun.front().request
           : beginning       ? &*beginning
           : !wanted.empty() ? &wanted.front()
                             : nullptr;
  }
  void forget_front() {
    if (!begun.empty())
      begun.pop_front();
    else if (beginning)
      beginning.reset();
    else
      wanted.pop_front();
  }
  bool in_line(const LoadRequest& request) const {
    return std::any_of(begun.begin(), begun.end(), [&](const Begun& b) { return b.request == request; }) ||
           beginning == request || std::find(wanted.begin(), wanted.end(), request) != wanted.end();
  }

  const Begin begin;
  const std::size_t ahead;
  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::deque<Begun> begun;
  std::optional<LoadRequest> beginning;
  std::deque<LoadRequest> wanted;
  bool stop = false;
  std::thread thread;
};

Prefetcher::Prefetcher(Begin begin, std::size_t ahead)
    : state_(std::make_unique<State>(std::move(begin), ahead)) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void Prefetcher::start(const LoadRequest& request) {
  const std::lock_guard lock(state_->mutex);
  if (state_->in_line(request)) return;
  state_->wanted.push_back(request);
  state_->changed.notify_all();
}

std::shared_ptr<const DataBatch> Prefetcher::take(const LoadRequest& request) {
  State::Begun taken;
  {
    std::unique_lock lock(state_->mutex);
    while (state_->front() && *state_->front() != request) state_->forget_front();
    if (!state_->front()) state_->wanted.push_back(request);
    state_->changed.notify_all();
    state_->changed.wait(lock, [this] { return !state_->begun.empty(); });
    taken = std::move(state_->begun.front());
    state_->begun.pop_front();
  }
  // The next piece begins now, so that threads that find nothing left to do in this one go on with it.
  state_->changed.notify_all();
  return taken.wait();
}

std::shared_ptr<const DataBatch> Prefetcher::peek(const LoadRequest& request) {
  const std::lock_guard lock(state_->mutex);
  if (state_->begun.empty()) return nullptr;
  State::Begun& front = state_->begun.front();
  if (front.request != request || front.error || (!front.seen && !front.piece->done())) return nullptr;
  if (front.seen) return front.seen;
  try {
    front.seen = front.piece->wait();
  } catch (...) {
    front.error = std::current_exception();
  }
  return front.seen;
}

}  // namespace convnet
