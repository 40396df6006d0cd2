#include "convnet/config/ini_edit.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "convnet/base/text_file.h"
#include "convnet/config/ini_lines.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

IniFile of_lines(const std::string& path, const std::vector<std::string>& lines, Diagnostics& diagnostics) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\n") + lines[i];
  return parse_ini(path, std::move(text), diagnostics);
}

/// Reports nothing: what is wrong with the text was reported when it was read.
IniFile of_lines(const std::string& path, const std::vector<std::string>& lines) {
  Diagnostics known;
  return of_lines(path, lines, known);
}

/// Returns the line after those that continue the value of line `line`; both from 0. Comments and empty lines
/// belong to the value only if a line that continues it follows.
std::size_t end_of_value(const std::vector<std::string>& lines, std::size_t line) {
  std::size_t end = line + 1;
  for (std::size_t at = end; at < lines.size(); ++at) {
    const std::size_t first = lines[at].find_first_not_of(" \t\r");
    if (first == std::string::npos || lines[at][first] == '#' || lines[at][first] == ';') continue;
    if (first == 0) break;
    end = at + 1;
  }
  return end;
}

/// Puts `written` in the place of the value that begins in line `line`, from 1, and of the lines that
/// continue it.
void replace_value(std::vector<std::string>& lines, std::size_t line, const std::string& written) {
  lines.at(line - 1) = written;
  const std::size_t end = end_of_value(lines, line - 1);
  for (std::size_t i = line; i < end; ++i) lines[i].clear();
}

/// Returns the line, from 1, where a section, which may be DEFAULT, has `key` itself; 0 if it does not.
std::size_t line_of_key(const IniFile& file, const std::string& section, const std::string& key) {
  Diagnostics known;
  for (const RawSection& raw : read_sections(without_byte_order_mark(file.text), nullptr, known)) {
    if (raw.section.name != section) continue;
    if (const IniValue* value = raw.section.find(key)) return static_cast<std::size_t>(value->where.line);
  }
  return 0;
}

}  // namespace

bool has_own_key(const IniFile& file, const std::string& section, const std::string& key) {
  return line_of_key(file, section, key) > 0;
}

IniFile with_value(const IniFile& file, const std::string& section, const std::string& key,
                   const std::string& text, Diagnostics& diagnostics) {
  std::vector<std::string> lines = lines_of(file.text);
  if (const std::size_t line = line_of_key(file, section, key); line > 0) {
    replace_value(lines, line, key + "=" + text);
  } else {
    if (lines.back().empty()) lines.pop_back();
    lines.insert(lines.end(), {"[" + section + "]", key + "=" + text, ""});
  }
  return of_lines(file.path, lines, diagnostics);
}

IniFile with_key(const IniFile& file, const std::string& section, const std::string& key,
                 const std::optional<std::string>& text) {
  const IniSection* in = file.find(section);
  const IniValue* value = in == nullptr ? nullptr : in->find(key);
  const bool inherited = value == nullptr || value->from_default;
  if (inherited && !text) return file;
  if (in == nullptr) {
    Diagnostics known;
    return with_value(file, section, key, *text, known);
  }
  std::vector<std::string> lines = lines_of(file.text);
  const std::string written = text ? key + "=" + *text : "# " + key + " was here";
  const auto line = static_cast<std::size_t>(inherited ? in->where.line : value->where.line);  // from 1
  if (inherited) {
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(line), written);
  } else {
    replace_value(lines, line, written);
  }
  return of_lines(file.path, lines);
}

IniFile without_key(const IniFile& file, const std::string& section, const std::string& key) {
  const IniSection* in = file.find_or_default(section);
  const IniValue* value = in == nullptr ? nullptr : in->find(key);
  if (value == nullptr) return file;
  std::vector<std::string> lines = lines_of(file.text);
  const auto line = static_cast<std::size_t>(value->where.line - 1);
  const std::size_t end = end_of_value(lines, line);
  // Empty lines and comments behind the value are not part of it.
  std::size_t last = line + 1;
  for (std::size_t i = line + 1; i < end; ++i) {
    const std::size_t word = lines[i].find_first_not_of(" \t\r");
    if (word != std::string::npos && lines[i][word] != '#' && lines[i][word] != ';') last = i + 1;
  }
  lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(line),
              lines.begin() + static_cast<std::ptrdiff_t>(last));
  return of_lines(file.path, lines);
}

}  // namespace convnet
