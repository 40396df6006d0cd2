// A progress display on a terminal.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "convnet/base/clock.h"

namespace convnet {

/// Returns whether stdout is a terminal.
bool stdout_is_terminal();

/// Returns "1:02:03" or "2:03".
std::string clock_text(double seconds);

/// The standard streams that a ProgressLine may be written to.
enum class ProgressStream { out, err };

/// Texts that a caller adds to a ProgressLine.
struct ProgressTexts {
  std::string before_bar, after_time;
};

/// A line on a terminal with a bar, the time left and the speed, as many of them as fit in its width; silent
/// in a pipe. The destructor erases it.
class ProgressLine {
 public:
  /// Shows nothing unless it is `wanted` and the stream is a terminal.
  explicit ProgressLine(std::string title, bool wanted = true, ProgressStream stream = ProgressStream::out);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();

  /// Shows progress in images; `since_start` of the `done` images came after construction and give the speed.
  /// `more` is asked for further texts, with the images a second.
  void show(std::int64_t done, std::int64_t total, std::int64_t since_start,
            const std::function<ProgressTexts(double rate)>& more = nullptr);
  /// Makes room for lines that stay.
  void clear();

 private:
  void erase() const;
  std::FILE* file() const { return stream_ == ProgressStream::out ? stdout : stderr; }
  int descriptor() const;

  std::string title_;
  ProgressStream stream_;
  bool terminal_, shown_ = false;
  Clock::time_point start_ = Clock::now(), last_ = Clock::now() - std::chrono::seconds(1);
};

}  // namespace convnet
