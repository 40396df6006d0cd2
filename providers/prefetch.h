// Reads the next pieces of data while the net trains on the current one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "providers/provider.h"

namespace convnet {

/// Owns a thread and a queue of requests, which it begins to read in order, until `ahead` pieces are in
/// progress or complete and not yet taken. After a piece that is not the last one of its batch, it requests
/// the next piece by itself. Not thread-safe: only the training thread calls it.
class Prefetcher {
 public:
  using Begin = std::function<std::unique_ptr<PieceInProgress>(const LoadRequest&)>;

  /// `begin` is called on the Prefetcher's thread, one call at a time, until the Prefetcher is destroyed.
  explicit Prefetcher(Begin begin, std::size_t ahead = 1);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  /// Waits for a call of `begin`, and destroys the pieces that were not taken.
  ~Prefetcher();

  /// Puts a request at the end of the queue, unless the queue already has it.
  void start(const LoadRequest& request);
  /// Returns the piece of `request`. If the queue has the request, waits for it and drops the requests before
  /// it; else drops all requests and reads the piece now. Rethrows what was thrown when it was read.
  std::shared_ptr<const DataBatch> take(const LoadRequest& request);
  /// Returns the piece if take() could return it without waiting; else null.
  std::shared_ptr<const DataBatch> peek(const LoadRequest& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convnet
