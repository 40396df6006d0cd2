#include "convnet/base/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/file_format.h"
#include "convnet/base/printable.h"
#include "convnet/base/utf8.h"

namespace convnet {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::int64_t line_at(std::string_view bytes, std::size_t at) {
  return 1 + std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at), '\n');
}

/// Returns the place of the first byte that belongs to no character of UTF-8.
std::size_t first_foreign_byte(std::string_view bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const std::size_t at = bytes.size() - rest.size();
    if (!take_code_point(rest)) return at;
  }
  return std::string_view::npos;
}

}  // namespace

std::optional<TextMistake> text_mistake(std::string_view bytes, NotUtf8 rule) {
  if (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF"))
    return TextMistake{0, "is a text in UTF-16; save it in UTF-8"};
  if (find_binary_format(bytes) != nullptr) {
    // Short signatures may begin a text, too.
    const std::string_view first = bytes.substr(0, kFormatBytes);
    if (std::any_of(first.begin(), first.end(),
                    [](char c) { return is_control(c) && c != '\t' && c != '\n' && c != '\r' && c != '\f'; }))
      return TextMistake{0, other_format_text(bytes, "a text file", "")};
  }
  if (const std::size_t nul = bytes.find('\0'); nul != std::string_view::npos)
    return TextMistake{line_at(bytes, nul), "holds a NUL byte; this is not a text file"};
  if (rule == NotUtf8::is_error) {
    if (const std::size_t at = first_foreign_byte(bytes); at != std::string_view::npos)
      return TextMistake{line_at(bytes, at),
                         "holds bytes that are no UTF-8 (perhaps Latin-1); save it in UTF-8"};
  }
  return std::nullopt;
}

std::string_view without_byte_order_mark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

std::string as_utf8(std::string text) {
  if (is_utf8(text)) return text;
  std::string out;
  for (const char c : text) append_utf8(out, static_cast<unsigned char>(c));
  return out;
}

std::string text_of(const std::string& file, std::string_view bytes, NotUtf8 rule) {
  if (const std::optional<TextMistake> mistake = text_mistake(bytes, rule))
    throw InputError(mistake->line == 0 ? fmt::format("{}: {}", file, mistake->what)
                                        : fmt::format("{}:{}: {}", file, mistake->line, mistake->what));
  std::string text = as_utf8(std::string(without_byte_order_mark(bytes)));
  // In place, because a text may be large.
  std::size_t to = 0;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (text[at] != '\r' || at + 1 == text.size() || text[at + 1] != '\n') text[to++] = text[at];
  text.resize(to);
  return text;
}

std::string read_bytes(const std::string& path, std::size_t most) {
  const auto fail = [&](int code) {
    throw InputError(fmt::format("{}: cannot be read: {}", path, error_text(code)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) fail(errno);
  std::string bytes;
  std::array<char, 4096> buffer{};
  while (bytes.size() <= most) {
    const std::size_t count =
        std::fread(buffer.data(), 1, std::min(buffer.size(), most + 1 - bytes.size()), file.get());
    if (count == 0) break;
    bytes.append(buffer.data(), count);
  }
  if (std::ferror(file.get())) fail(errno);
  return bytes;
}

std::vector<std::string> read_names(const std::string& path) {
  const std::string text = text_of(path, read_whole_file(path), NotUtf8::is_latin1);
  std::vector<std::string> names;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    if (!line.empty()) names.emplace_back(line);
  }
  return names;
}

}  // namespace convnet
