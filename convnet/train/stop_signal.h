// SIGINT and SIGTERM as a question that the training loop asks between minibatches.
#pragma once

namespace convnet {

/// Blocks both signals in the thread that makes it and in all threads started later. Make it before any
/// thread.
class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();
  /// Whether one of them has arrived. Does not block.
  bool arrived();

 private:
  int fd_ = -1;
  bool arrived_ = false;
};

}  // namespace convnet
