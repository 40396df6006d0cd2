// Replacements for stdout and stderr to which writing never fails.
#pragma once

#include <array>
#include <atomic>
#include <cstdio>

namespace convnet {

/// Returns whether a file descriptor is a terminal.
bool is_terminal(int descriptor);

/// Replaces stdout and stderr as long as it lives; main() makes the only one. Printing never fails and never
/// throws: what cannot be written is dropped, and error() reports it. Control characters in the output become
/// question marks, because they may stem from the user's files and would control the terminal.
class StandardStreams {
 public:
  StandardStreams();
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;
  /// Writes what is left, and puts the old streams back.
  ~StandardStreams();

  /// Returns the errno of the first write to stdout that failed; 0 if none has.
  int error() const { return streams_[0].error; }
  /// Drops everything that is printed from now on, except what is written to stderr's file descriptor
  /// directly. Throws DeviceError.
  void silence();
  /// Prints to stderr again after silence().
  void unsilence_errors();
  /// Returns whether nobody reads stdout any more, as in `convnet … | head -1`.
  bool closed() const;

 private:
  struct Stream {
    int descriptor = -1;
    bool terminal = false;
    std::atomic<int> error = 0;
    std::atomic<bool> silent = false;
    std::FILE* file = nullptr;
    std::FILE* before = nullptr;
  };
  /// `buffering` is that of a stream that is not a terminal.
  static void replace(std::FILE*& stream, Stream& by, int descriptor, int buffering);

  std::array<Stream, 2> streams_;
};

}  // namespace convnet
