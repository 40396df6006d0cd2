// Requests to end a run: SIGINT, SIGTERM, SIGHUP, SIGUSR1, a closed pipe behind stdout, or a time limit. The
// training loop checks for them between minibatches.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <thread>

#include "convnet/base/clock.h"
#include "convnet/base/standard_streams.h"

namespace convnet {

/// Blocks the signals in the thread that makes it and in all threads started later, so make it before any
/// other thread. SIGUSR1 is among them because mpirun passes it on to all processes and Slurm can send it.
/// SIGHUP is not blocked if it is ignored, as it is under nohup. Keeps a reference to `streams`.
class StopSignal {
 public:
  explicit StopSignal(const StandardStreams& streams);
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();
  /// Returns whether a signal has arrived, nobody reads stdout any more, or the time is up. Does not block.
  /// Signals that a Watcher watches are left to it.
  bool arrived();

  /// The time is up `seconds` after this object was made, less what keep_back() asks for.
  void limit_time(double seconds) { limit_ = seconds; }
  /// Keeps so many seconds of the time limit back for what remains to be done after arrived(); minus infinity
  /// means that the limit does not count yet.
  void keep_back(double seconds) { kept_back_ = seconds; }
  /// Returns the seconds that are left of the time limit, less than 0 if it is over; infinity without a
  /// limit.
  double seconds_left() const { return limit_ - seconds_since(start_); }
  /// Returns whether arrived() is true because the time is up.
  bool out_of_time() const { return out_of_time_; }
  /// Returns the signal because of which arrived() is true; 0 for another reason.
  int signal() const { return signal_; }

  /// The signals that a Watcher takes: none, SIGINT, or all of them. The others stay pending until arrived()
  /// takes them, for those who ask whether the program is to end (OutputFile, while nobody reads a pipe).
  enum class Watched { none, interrupts, all };

  /// A thread that gives each of these signals to a function, until that returns false.
  class Watcher {
   public:
    Watcher(StopSignal& signals, Watched watched, std::function<bool(int signal)> takes);
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;
    ~Watcher();

   private:
    StopSignal& signals_;
    int over_ = -1;  ///< event descriptor by which the destructor ends the thread
    std::thread thread_;
  };

  /// As long as it lives, the signals end the program at once, as they do by default. It is for long
  /// preparations, before there is anything to save. Another thread calls `before_end` first.
  class EndsProgram {
   public:
    EndsProgram(StopSignal& signals, std::function<void()> before_end);

   private:
    Watcher watcher_;
  };

  /// As long as it lives, the first Ctrl-C (SIGINT) is answered at once by a line on stderr, because the
  /// minibatch and the checkpoint after it may take long, and the second one ends the program.
  class AnswersCtrlC {
   public:
    explicit AnswersCtrlC(StopSignal& signals);

   private:
    Watcher watcher_;
  };

 private:
  const StandardStreams& streams_;
  int interrupts_, others_;  ///< descriptors of SIGINT and of the other signals
  Watched watched_ = Watched::none;
  std::atomic<int> signal_ = 0;  ///< that has been taken; 0 for none
  bool arrived_ = false, out_of_time_ = false;
  Clock::time_point start_ = Clock::now();
  double limit_ = std::numeric_limits<double>::infinity();  ///< seconds from start_
  double kept_back_ = 0;                                    ///< seconds
};

}  // namespace convnet
