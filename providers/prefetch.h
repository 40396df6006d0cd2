// Reads the next pieces of data while the current one trains.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "providers/provider.h"

namespace convnet {

/// Owns one loader thread and a line of requests that are read in order, up to `ahead` of them before they
/// are taken. Behind a piece that is not its batch's last comes the next piece by itself. Not thread-safe
/// itself: called from the training thread.
class Prefetcher {
 public:
  /// `load` runs on the loader thread, one call at a time, until the Prefetcher is destroyed.
  explicit Prefetcher(std::function<std::shared_ptr<const DataBatch>(const LoadRequest&)> load,
                      std::size_t ahead = 1);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  /// Waits for a load in flight.
  ~Prefetcher();

  /// Puts a request at the end of the line, unless it stands there already.
  void start(const LoadRequest& request);
  /// Returns the piece that `request` asks for: waits for it if it stands in the line, and forgets what
  /// stands before it; else forgets all and reads it now. Rethrows the loader's exception.
  std::shared_ptr<const DataBatch> take(const LoadRequest& request);
  /// Returns the piece that take() would give without waiting; else null.
  std::shared_ptr<const DataBatch> peek(const LoadRequest& request) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convnet
