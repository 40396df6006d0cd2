// Requests to end a run (SIGINT, SIGTERM, SIGHUP, nobody who reads its output) as a question that the
// training loop asks between minibatches.
#pragma once

#include <thread>

#include "convnet/train/standard_streams.h"

namespace convnet {

/// Blocks the signals in the thread that makes it and in all threads started later. Make it before any
/// thread. SIGHUP is left alone where it is ignored, as nohup wants it. Keeps a reference to `streams`.
class StopSignal {
 public:
  explicit StopSignal(const StandardStreams& streams);
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();
  /// Whether one of them has arrived, or nobody reads stdout any more. Does not block.
  bool arrived();

  /// Lets the signals end the program at once, as they usually do, as long as it lives: for long preparations
  /// that leave nothing to save.
  class EndsProgram {
   public:
    explicit EndsProgram(const StopSignal& signals);
    EndsProgram(const EndsProgram&) = delete;
    EndsProgram& operator=(const EndsProgram&) = delete;
    ~EndsProgram();

   private:
    int over_ = -1;  ///< an event that the watcher waits for, too
    std::thread watcher_;
  };

 private:
  const StandardStreams& streams_;
  int fd_ = -1;
  bool arrived_ = false;
};

}  // namespace convnet
