#include "convnet/base/generated_text.h"

#include <fmt/format.h>

#include "convnet/base/checksum.h"
#include "convnet/base/error.h"
#include "convnet/base/file.h"

namespace convnet {
namespace {

std::string last_line(const std::string& text) {
  Crc32 sum;
  sum.add(text.data(), text.size());
  return fmt::format("# Made by convnet, which replaces this file as long as its checksum is {}.\n",
                     sum.text());
}

}  // namespace

std::string generated_text(const std::string& text) {
  const std::string lines = text.empty() || text.back() == '\n' ? text : text + '\n';
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
