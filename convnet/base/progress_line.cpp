#include "convnet/base/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace convnet {
namespace {

/// "1:02:03" or "2:03".
std::string duration(double seconds) {
  const auto s = static_cast<long>(seconds);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

/// Erases the line by writing to the descriptor, because the stream stdout replaces control characters. If
/// this fails, so will what is printed next.
void erase_line() {
  constexpr std::string_view kErase = "\r\033[K";
  std::fflush(stdout);
  if (write(STDOUT_FILENO, kErase.data(), kErase.size()) < 0) return;
}

}  // namespace

ProgressLine::ProgressLine(std::string title, bool wanted)
    : title_(std::move(title)), terminal_(wanted && isatty(STDOUT_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  clear();
  std::fflush(stdout);
}

void ProgressLine::clear() {
  if (shown_) erase_line();
  shown_ = false;
}

void ProgressLine::show(std::int64_t done, std::int64_t total, std::int64_t since_start) {
  if (!terminal_ || seconds_since(last_) < 0.1) return;
  last_ = Clock::now();
  const double rate = static_cast<double>(since_start) / std::max(1e-9, seconds_since(start_));
  const int width = 20;
  const auto filled = static_cast<std::size_t>(width * done / std::max<std::int64_t>(1, total));
  erase_line();
  fmt::print("{} [{}{}] {:.0f} images/s, {} left", title_, std::string(filled, '#'),
             std::string(width - filled, '.'), rate,
             duration(static_cast<double>(total - done) / std::max(1e-9, rate)));
  std::fflush(stdout);
  shown_ = true;
}

}  // namespace convnet
