#include "convnet/base/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "convnet/base/printable.h"
#include "convnet/base/standard_streams.h"
#include "convnet/base/utf8.h"

namespace convnet {
namespace {

/// Returns the columns of the terminal; 80 where it does not say.
std::size_t terminal_columns(int descriptor) {
  winsize size{};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

std::string bar_text(double done, std::size_t width) {
  const auto filled = static_cast<std::size_t>(static_cast<double>(width) * std::clamp(done, 0.0, 1.0));
  return " [" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
}

/// Returns the first `most` characters.
std::string first_characters(std::string_view text, std::size_t most) {
  std::string_view rest = text;
  for (std::size_t count = 0; count < most && !rest.empty(); ++count) take_code_point(rest);
  return std::string(text.substr(0, text.size() - rest.size()));
}

}  // namespace

std::string progress_text(const ProgressTexts& usual, const ProgressTexts& narrow, double done,
                          std::size_t columns) {
  constexpr std::size_t kNarrowest = 6, kUsual = 10, kWidest = 20;
  const std::size_t around_bar = bar_text(0, 0).size();
  const auto room_for_bar = [&](const ProgressTexts& texts, std::size_t parts) -> std::size_t {
    std::size_t others = character_count(texts.before_bar) + around_bar;
    for (std::size_t i = 0; i < parts; ++i) others += character_count(texts.after_bar[i]);
    return columns > others ? columns - others : 0;
  };
  const ProgressTexts& texts = room_for_bar(usual, usual.after_bar.size()) >= kUsual ? usual : narrow;
  std::size_t parts = texts.after_bar.size();
  while (parts > 1 && room_for_bar(texts, parts) < kNarrowest) --parts;
  std::string line = texts.before_bar;
  if (const std::size_t room = room_for_bar(texts, parts); room >= kNarrowest)
    line += bar_text(done, std::min(room, kWidest));
  for (std::size_t i = 0; i < parts; ++i) {
    if (character_count(line) + character_count(texts.after_bar[i]) <= columns) line += texts.after_bar[i];
  }
  return first_characters(line, columns);
}

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

/// Erases the line that the cursor is at the beginning of, and what follows it, and shows `text` there.
/// Writes to the descriptor, because the program's streams replace control characters. If this fails, so will
/// what is printed next.
void ProgressLine::send(std::string_view text) const {
  const std::string line = "\r\033[J" + replace_controls(text, '?') + (text.empty() ? "" : "\r");
  std::fflush(file());
  if (write(descriptor(), line.data(), line.size()) < 0) return;
}

void ProgressLine::clear() {
  if (shown_) send("");
  shown_ = false;
}

void ProgressLine::show(std::int64_t done, std::int64_t total, std::int64_t since_start,
                        const std::function<ProgressAdditions(double rate)>& more) {
  if (!terminal_ || seconds_since(last_) < 0.1) return;
  last_ = Clock::now();
  const double rate = static_cast<double>(since_start) / std::max(1e-9, seconds_since(start_));
  ProgressAdditions additions = {{title_, "", ""}, {title_, "", ""}};
  if (more) additions = more(rate);
  const auto around_bar = [&](const ProgressAdditions::Texts& added, const char* images) {
    ProgressTexts texts = {
        added.before_bar,
        {" " + clock_text(static_cast<double>(total - done) / std::max(1e-9, rate)) + " left"}};
    if (!added.after_time.empty()) texts.after_bar.push_back(", " + added.after_time);
    texts.after_bar.push_back(fmt::format(", {:.0f} {}/s", rate, images));
    if (!added.after_speed.empty()) texts.after_bar.push_back(", " + added.after_speed);
    return texts;
  };
  const double share = static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(1, total));
  // A terminal would break a line that fills it.
  send(progress_text(around_bar(additions.usual, "images"), around_bar(additions.narrow, "img"), share,
                     terminal_columns(descriptor()) - 1));
  shown_ = true;
}

}  // namespace convnet
