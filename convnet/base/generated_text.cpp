#include "convnet/base/generated_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "convnet/base/checksum.h"
#include "convnet/base/error.h"
#include "convnet/base/file.h"

namespace convnet {
namespace {

constexpr std::string_view kLastLine =
    "# Made by convnet, which replaces this file as long as its checksum is ";

std::string last_line(const std::string& text) {
  Crc32 sum;
  sum.add(text.data(), text.size());
  return fmt::format("{}{}.\n", kLastLine, sum.text());
}

/// Returns the text without the last lines of generated texts that it was made from.
std::string without_last_lines(std::string text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    if (std::string_view(text).substr(begin).starts_with(kLastLine))
      text.erase(begin, end - begin);
    else
      begin = end;
  }
  return text;
}

}  // namespace

std::string generated_text(const std::string& text) {
  std::string lines = without_last_lines(text);
  if (!lines.empty() && lines.back() != '\n') lines += '\n';
  return lines + last_line(lines);
}

bool is_unedited(const std::string& path) {
  try {
    const std::string text = read_whole_file(path);
    if (text.size() < 2) return text.empty();
    const std::size_t end = text.rfind('\n', text.size() - 2);  // of the line before the last one
    const std::string lines = end == std::string::npos ? "" : text.substr(0, end + 1);
    return text == lines + last_line(lines);
  } catch (const RunError&) {
    return false;
  }
}

}  // namespace convnet
