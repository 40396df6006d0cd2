// Replacements for stdout and stderr to which writing never fails.
#pragma once

#include <array>
#include <atomic>
#include <cstdio>

namespace convnet {

/// Replaces stdout and stderr as long as it lives. Printing never fails and never throws: what
/// cannot be written is dropped, and error() reports it. Control characters in the output, which may stem
/// from the user's files, become question marks, so that no file's text commands the terminal. Make one, in
/// main().
class StandardStreams {
 public:
  StandardStreams();
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;
  /// Writes what is left, and puts the old streams back.
  ~StandardStreams();

  /// errno of the first write to stdout that failed; 0 if none has.
  int error() const { return streams_[0].error; }
  /// Drops what is printed from now on, whatever way, but for errors that are written to the descriptor of
  /// stderr. Throws DeviceError.
  void silence();
  /// Lets stderr be heard again.
  void unsilence_errors();
  /// Returns whether nobody reads stdout any more, as in `convnet … | head -1`.
  bool closed() const;

 private:
  struct Stream {
    int descriptor = -1;
    std::atomic<int> error = 0;
    std::atomic<bool> silent = false;
    std::FILE* file = nullptr;
    std::FILE* before = nullptr;
  };
  void replace(std::FILE*& stream, Stream& by, int descriptor, int buffering);

  std::array<Stream, 2> streams_;
};

}  // namespace convnet
