// Temporary files are removed before a signal ends the program.
#pragma once

#include <string>

namespace convnet {

/// From now on SIGINT, SIGTERM and SIGHUP remove the files of all RemovedAtEnd objects before they end the
/// program as they do by default. Signals that are ignored stay ignored.
void remove_temporaries_at_end_signals();

/// Removes those files and ends the program as `signal` does by default, also where it is blocked or ignored.
void end_by_signal(int signal);

/// A temporary file that such a signal removes as long as the object lives. Make the object once the file is
/// there: the name may belong to another process before. `file` must be constant and outlive the object.
/// Thread-safe.
class RemovedAtEnd {
 public:
  /// If a signal is just ending the program, removes the file and does not return.
  explicit RemovedAtEnd(const std::string& file);
  RemovedAtEnd(const RemovedAtEnd&) = delete;
  RemovedAtEnd& operator=(const RemovedAtEnd&) = delete;
  ~RemovedAtEnd();

  struct Slot;

 private:
  const std::string& file_;
  Slot* const slot_;
};

}  // namespace convnet
