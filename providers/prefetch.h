// Loads the next batch while the current one trains.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "providers/provider.h"

namespace convnet {

/// Owns one loader thread. Not thread-safe itself: called from the training thread.
class Prefetcher {
 public:
  /// `load` runs on the loader thread, one call at a time, until the Prefetcher is destroyed.
  explicit Prefetcher(std::function<std::shared_ptr<const DataBatch>(const LoadRequest&)> load);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  /// Waits for a load in flight.
  ~Prefetcher();

  /// Starts loading; at most one request is kept (a new one replaces one nobody took).
  void start(const LoadRequest& request);
  /// The batch of `request`: waits for it if it was started, else loads it now. Rethrows the loader's
  /// exception.
  std::shared_ptr<const DataBatch> take(const LoadRequest& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convnet
