// A progress display on a terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "convnet/base/clock.h"

namespace convnet {

/// Returns whether stdout is a terminal.
bool stdout_is_terminal();

/// Returns "1:02:03" or "2:03".
std::string clock_text(double seconds);

/// A line on a terminal (stdout) with a bar, the speed and the time left, cut off at the terminal's width;
/// silent in a pipe. The destructor erases it.
class ProgressLine {
 public:
  /// Shows nothing unless it is `wanted`.
  explicit ProgressLine(std::string title, bool wanted = true);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();

  /// Shows progress in images; `since_start` of the `done` images came after construction and give the speed.
  /// `more` is asked for the end of the line, with the images a second.
  void show(std::int64_t done, std::int64_t total, std::int64_t since_start,
            const std::function<std::string(double rate)>& more = nullptr);
  /// Makes room for lines that stay.
  void clear();

 private:
  std::string title_;
  bool terminal_, shown_ = false;
  Clock::time_point start_ = Clock::now(), last_ = Clock::now() - std::chrono::seconds(1);
};

}  // namespace convnet
