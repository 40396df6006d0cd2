// The state of a step that the threads of its devices and of the transport share.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace convnet {

/// A message between two processes, while the transport sends or receives it.
class MessageTransfer {
 public:
  /// `go_on` (optional) is called once: when the message has ended, or its step has failed.
  explicit MessageTransfer(std::function<void()> go_on) : go_on_(std::move(go_on)) {}

  void end() {
    ended_ = true;
    let_go();
  }
  void let_go() {
    if (!left_.exchange(true) && go_on_) go_on_();
  }
  /// Whether the transport no longer uses the memory of the message.
  bool ended() const { return ended_; }

 private:
  const std::function<void()> go_on_;
  std::atomic<bool> ended_ = false, left_ = false;
};

/// The error of a step and its messages. All functions may be called from any thread.
class StepState {
 public:
  /// Begins the next step, which uses the same memory.
  void begin() {
    const std::lock_guard lock(mutex_);
    failed_ = false;
    error_ = nullptr;
    transfers_.erase(
        std::remove_if(transfers_.begin(), transfers_.end(), [](const auto& t) { return t->ended(); }),
        transfers_.end());
  }
  void add(const std::shared_ptr<MessageTransfer>& transfer) {
    const std::lock_guard lock(mutex_);
    transfers_.push_back(transfer);
    if (failed_) transfer->let_go();
  }
  /// Ends the step with an error, unless it already has one: no device starts another of its tasks, and
  /// nothing waits for its messages.
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (failed_.exchange(true)) return;
    error_ = std::move(error);
    for (const auto& transfer : transfers_) transfer->let_go();
  }
  bool failed() const { return failed_; }
  /// Throws the error of the step, if it has one.
  void rethrow_error() const {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }
  /// Whether the transport uses memory of the step.
  bool has_transfers() const {
    const std::lock_guard lock(mutex_);
    return std::any_of(transfers_.begin(), transfers_.end(), [](const auto& t) { return !t->ended(); });
  }
  /// Returns a function that does `work`, unless the step has failed. If `work` throws, the step fails.
  template <class Work>
  std::function<void()> guarded(Work work) {
    return [this, work = std::move(work)] {
      if (failed_) return;
      try {
        work();
      } catch (...) {
        fail(std::current_exception());
      }
    };
  }

 private:
  mutable std::mutex mutex_;  ///< guards the error and the list
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;
  std::vector<std::shared_ptr<MessageTransfer>> transfers_;
};

}  // namespace convnet
