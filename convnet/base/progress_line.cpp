#include "convnet/base/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace convnet {
namespace {

/// Returns the columns of the terminal; 80 where it does not say.
std::size_t terminal_columns() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

/// Erases the line by writing to the descriptor, because the stream stdout replaces control characters. If
/// this fails, so will what is printed next.
void erase_line() {
  constexpr std::string_view kErase = "\r\033[K";
  std::fflush(stdout);
  if (write(STDOUT_FILENO, kErase.data(), kErase.size()) < 0) return;
}

}  // namespace

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }

std::string clock_text(double seconds) {
  const auto s = static_cast<long>(seconds);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

ProgressLine::ProgressLine(std::string title, bool wanted)
    : title_(std::move(title)), terminal_(wanted && stdout_is_terminal()) {}

ProgressLine::~ProgressLine() {
  clear();
  std::fflush(stdout);
}

void ProgressLine::clear() {
  if (shown_) erase_line();
  shown_ = false;
}

void ProgressLine::show(std::int64_t done, std::int64_t total, std::int64_t since_start,
                        const std::function<std::string(double rate)>& more) {
  if (!terminal_ || seconds_since(last_) < 0.1) return;
  last_ = Clock::now();
  const double rate = static_cast<double>(since_start) / std::max(1e-9, seconds_since(start_));
  const int width = 20;
  const auto filled = static_cast<std::size_t>(width * done / std::max<std::int64_t>(1, total));
  std::string line = fmt::format("{} [{}{}] {:.0f} images/s, {} left", title_, std::string(filled, '#'),
                                 std::string(width - filled, '.'), rate,
                                 clock_text(static_cast<double>(total - done) / std::max(1e-9, rate)));
  if (more) line += more(rate);
  // A line that wraps would not be erased.
  line.resize(std::min(line.size(), terminal_columns() - 1));
  erase_line();
  fmt::print("{}", line);
  std::fflush(stdout);
  shown_ = true;
}

}  // namespace convnet
