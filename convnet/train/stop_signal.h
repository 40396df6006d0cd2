// Requests to end a run (SIGINT, SIGTERM, SIGHUP, SIGUSR1, nobody who reads its output) as a question that
// the training loop asks between minibatches.
#pragma once

#include <functional>
#include <thread>

#include "convnet/base/standard_streams.h"

namespace convnet {

/// Blocks the signals in the thread that makes it and in all threads started later. Make it before any
/// thread. SIGUSR1 is the one that mpirun passes on to all processes, and that Slurm can send. SIGHUP is left
/// alone where it is ignored, as nohup wants it. Keeps a reference to `streams`.
class StopSignal {
 public:
  explicit StopSignal(const StandardStreams& streams);
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();
  /// Returns whether one of them has arrived, or nobody reads stdout any more. Does not block.
  bool arrived();

  /// Lets the signals end the program at once, as they usually do, as long as it lives: for long preparations
  /// that leave nothing to save. `before_end` is called first, by another thread.
  class EndsProgram {
   public:
    EndsProgram(const StopSignal& signals, std::function<void()> before_end);
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
