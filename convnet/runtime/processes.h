// The processes of a run, and the data that they exchange between steps.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convnet/runtime/transport.h"

namespace convnet {

/// Seconds after which waiting counts as a stall, unless --stall-timeout gives others.
inline constexpr int kStallSeconds = 300;

/// The processes of a run. All of them make the same calls in the same order, each from one thread.
class Processes {
 public:
  /// Takes a transport between at least two processes. An exchange fails if nothing arrives for
  /// `stall_seconds`.
  explicit Processes(std::unique_ptr<Transport> transport, double stall_seconds = kStallSeconds);

  int rank() const { return transport_->rank(); }
  int count() const { return transport_->size(); }
  Transport& transport() { return *transport_; }
  double stall_seconds() const { return stall_seconds_; }
  void set_stall_seconds(double seconds) { stall_seconds_ = seconds; }
  /// Whether GPUs may exchange data by NCCL, not through the hosts.
  bool uses_nccl() const { return uses_nccl_; }
  void set_uses_nccl(bool uses) { uses_nccl_ = uses; }
  /// Sets the function that returns whether this process was asked to stop.
  void set_asked_to_stop(std::function<bool()> asked) { asked_to_stop_ = std::move(asked); }
  const std::string& host(int rank) const { return hosts_.at(static_cast<std::size_t>(rank)); }
  /// Returns "rank 3 on host b".
  std::string name(int rank) const;

  /// Sends `mine` to all processes and returns the texts of all processes, by rank (an all-gather). If any
  /// process called fail(), throws its error on all of them. Throws RunError if the others do not answer.
  std::vector<std::string> exchange(std::string_view mine);
  /// Does `work` on all processes. If it throws on one of them, this throws the same error on all.
  void run_collectively(const std::function<void()>& work);
  /// Does `work`, which may take any time, on the first process, and throws its error on all. The others wait
  /// without a limit: to write a checkpoint to a slow disk is no stall. (A launcher ends them if the first
  /// process ends.)
  void run_on_first(const std::function<void()>& work);
  /// Answers the next exchange of the others with an error, so that all processes end as this one does. Waits
  /// for them as exchange() does, and does nothing if they know the error from an exchange already.
  void fail(const std::exception& error) noexcept;
  /// Returns whether all processes know the error that ended an exchange. Then only the first one reports it.
  bool all_know() const { return errors_told_ > 0; }

  /// Returns whether any process had been asked to stop at the last exchange; all processes return the same.
  bool stop() const { return stop_; }

 private:
  std::vector<std::string> answer(char kind, std::string_view text);
  std::vector<std::string> all_gather(std::string mine);
  std::string swap(int to, const std::string& message, int from);

  std::unique_ptr<Transport> transport_;
  std::function<bool()> asked_to_stop_;
  double stall_seconds_;
  bool uses_nccl_ = true;
  std::vector<std::string> hosts_;  ///< by rank
  int errors_told_ = 0;
  bool stop_ = false;
};

/// Calls `use` with an error; for want of memory or of threads, with the DeviceError that the program ends
/// with in place of the C++ library's.
void with_own_error(const std::exception& error, const std::function<void(const std::exception&)>& use);

/// Does `work` as Processes::run_collectively() does; alone if `processes` is null.
void run_collectively(Processes* processes, const std::function<void()>& work);
/// Does `work` as Processes::run_on_first() does; alone if `processes` is null.
void run_on_first(Processes* processes, const std::function<void()>& work);

}  // namespace convnet
