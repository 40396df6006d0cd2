// A progress display on a terminal.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/base/clock.h"

namespace convnet {

/// Returns whether stdout is a terminal.
bool stdout_is_terminal();

/// Returns "1:02:03" or "2:03".
std::string clock_text(double seconds);

/// The standard streams that a ProgressLine may be written to.
enum class ProgressStream { out, err };

/// The texts of a progress line around its bar.
struct ProgressTexts {
  std::string before_bar;
  std::vector<std::string> after_bar;  ///< the most important one first
};

/// Returns a progress line of at most `columns` characters, of which the share `done` is finished: the texts
/// `usual` around a bar if they fit, else `narrow`, without what there is no room for: the last texts, then
/// the bar.
std::string progress_text(const ProgressTexts& usual, const ProgressTexts& narrow, double done,
                          std::size_t columns);

/// Texts that a caller adds to a ProgressLine, for wide and narrow terminals.
struct ProgressAdditions {
  struct Texts {
    std::string before_bar;  ///< takes the place of the title
    std::string after_time;
    std::string after_speed = {};
  };
  Texts usual, narrow;
};

/// A line on a terminal with a bar, the time left and the speed, as many of them as fit in its width. It
/// shows nothing if the stream is not a terminal. The destructor erases it. While it is shown, the cursor is
/// at its beginning, so that all of it can be erased even if the terminal has become narrower and broken it.
class ProgressLine {
 public:
  /// `wanted` = false makes a line that shows nothing.
  explicit ProgressLine(std::string title, bool wanted = true, ProgressStream stream = ProgressStream::out);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();

  /// Shows that `done` of `total` images are finished. The speed follows from the `since_start` of them that
  /// were finished since construction. `more`, if given, returns further texts; its argument is the speed in
  /// images a second.
  void show(std::int64_t done, std::int64_t total, std::int64_t since_start,
            const std::function<ProgressAdditions(double rate)>& more = nullptr);
  /// Erases the line until the next show(), so that other lines can be printed.
  void clear();

 private:
  void send(std::string_view text) const;
  std::FILE* file() const { return stream_ == ProgressStream::out ? stdout : stderr; }
  int descriptor() const;

  std::string title_;
  ProgressStream stream_;
  bool terminal_, shown_ = false;
  Clock::time_point start_ = Clock::now(), last_ = Clock::now() - std::chrono::seconds(1);
};

}  // namespace convnet
