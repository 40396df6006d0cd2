#include "convnet/base/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "convnet/base/standard_streams.h"

namespace convnet {
namespace {

/// Returns the columns of the terminal; 80 where it does not say.
std::size_t terminal_columns(int descriptor) {
  winsize size{};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

std::string bar_text(std::int64_t done, std::int64_t total, std::size_t width) {
  const double part = static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(1, total));
  const auto filled = static_cast<std::size_t>(static_cast<double>(width) * std::clamp(part, 0.0, 1.0));
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
}

}  // namespace

bool stdout_is_terminal() { return is_terminal(STDOUT_FILENO); }

std::string clock_text(double seconds) {
  const auto s = static_cast<long>(seconds);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

ProgressLine::ProgressLine(std::string title, bool wanted, ProgressStream stream)
    : title_(std::move(title)), stream_(stream), terminal_(wanted && is_terminal(descriptor())) {}

ProgressLine::~ProgressLine() {
  clear();
  std::fflush(file());
}

int ProgressLine::descriptor() const {
  return stream_ == ProgressStream::out ? STDOUT_FILENO : STDERR_FILENO;
}

/// Writes to the descriptor, because the program's streams replace control characters. If this fails, so will
/// what is printed next.
void ProgressLine::erase() const {
  constexpr std::string_view kErase = "\r\033[K";
  std::fflush(file());
  if (write(descriptor(), kErase.data(), kErase.size()) < 0) return;
}

void ProgressLine::clear() {
  if (shown_) erase();
  shown_ = false;
}

void ProgressLine::show(std::int64_t done, std::int64_t total, std::int64_t since_start,
                        const std::function<ProgressTexts(double rate)>& more) {
  if (!terminal_ || seconds_since(last_) < 0.1) return;
  last_ = Clock::now();
  const double rate = static_cast<double>(since_start) / std::max(1e-9, seconds_since(start_));
  ProgressTexts texts;
  if (more) texts = more(rate);
  std::string line = title_;
  if (!texts.before_bar.empty()) line += " " + texts.before_bar;
  std::vector<std::string> parts = {
      " " + clock_text(static_cast<double>(total - done) / std::max(1e-9, rate)) + " left"};
  if (!texts.after_time.empty()) parts.push_back(", " + texts.after_time);
  parts.push_back(fmt::format(", {:.0f} images/s", rate));
  // A line that wraps would not be erased.
  const std::size_t most = terminal_columns(descriptor()) - 1;
  std::size_t others = line.size() + std::string_view(" []").size();
  for (const std::string& part : parts) others += part.size();
  constexpr std::size_t kNarrowest = 4, kWidest = 20;
  const std::size_t room = most > others ? most - others : 0;
  parts.insert(parts.begin(), " " + bar_text(done, total, std::clamp(room, kNarrowest, kWidest)));
  for (const std::string& part : parts) {
    if (line.size() + part.size() > most) break;
    line += part;
  }
  line.resize(std::min(line.size(), most));
  erase();
  fmt::print(file(), "{}", line);
  std::fflush(file());
  shown_ = true;
}

}  // namespace convnet
