#include "convnet/config/ini_edit.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "convnet/base/text_file.h"
#include "convnet/config/ini_flat.h"
#include "convnet/config/ini_lines.h"
#include "convnet/config/ini_templates.h"
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
    if (first == std::string::npos || lines[at][first] == '#' || lines[at][first] == ';' ||
        is_rem_comment(lines[at]))
      continue;
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

/// The places where the lines of a file have one section, which may be DEFAULT.
struct SectionLines {
  bool is_plain = false;  ///< the file has it as it is
  bool is_use = false;    ///< the file uses a template by this name, or repeats it
  int line_of_key = 0;    ///< from 1; 0: it does not have the key itself
};

SectionLines find_lines(const IniFile& file, const std::string& section, const std::string& key) {
  Diagnostics known;
  const RawFile raw = read_lines(without_byte_order_mark(file.text), nullptr, known);
  const bool templates = has_templates(raw);
  const std::vector<bool> is_plain = templates ? use_templates(raw, known).is_plain : std::vector<bool>{};
  SectionLines lines;
  for (std::size_t i = 0; i < raw.sections.size(); ++i) {
    if (raw.sections[i].section.name != section) continue;
    lines.is_plain = !templates || is_plain[i];
    lines.is_use = !lines.is_plain;
    const IniValue* value = raw.sections[i].section.find(key);
    if (value != nullptr && lines.is_plain) lines.line_of_key = value->where.line;
  }
  return lines;
}

}  // namespace

bool has_own_key(const IniFile& file, const std::string& section, const std::string& key) {
  return find_lines(file, section, key).line_of_key > 0;
}

IniFile with_value(const IniFile& file, const std::string& section, const std::string& key,
                   const std::string& text, Diagnostics& diagnostics) {
  const SectionLines found = find_lines(file, section, key);
  // A section of this name below the use would be merged with it.
  if (found.is_use) {
    const IniFile flat = without_templates(file);
    if (flat.text != file.text) return with_value(flat, section, key, text, diagnostics);
  }
  std::vector<std::string> lines = lines_of(file.text);
  if (found.line_of_key > 0) {
    replace_value(lines, static_cast<std::size_t>(found.line_of_key), key + "=" + text);
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
  if (const SectionLines found = find_lines(file, section, key);
      in == nullptr || !found.is_plain || (!inherited && found.line_of_key == 0)) {
    Diagnostics known;
    if (text) return with_value(file, section, key, *text, known);
    const IniFile flat = without_templates(file);
    return flat.text == file.text ? file : with_key(flat, section, key, text);
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

IniFile with_section(const IniFile& file, const std::string& section, const std::string& text,
                     Diagnostics& diagnostics) {
  if (file.find(section) != nullptr && !find_lines(file, section, "").is_plain) {
    const IniFile flat = without_templates(file);
    if (flat.text != file.text) return with_section(flat, section, text, diagnostics);
  }
  Diagnostics known;
  const RawFile raw = read_lines(without_byte_order_mark(file.text), nullptr, known);
  std::vector<std::string> lines = lines_of(file.text);
  for (const RawSection& one : raw.sections) {
    if (one.section.name != section) continue;
    // From the last part on, so that the lines before keep their numbers.
    for (std::size_t i = one.parts.size(); i-- > 0;) {
      const auto [first, last] = one.parts[i];
      const std::size_t begin = static_cast<std::size_t>(first) - 1;
      const std::size_t end =
          std::max<std::size_t>(begin + 1, end_of_value(lines, static_cast<std::size_t>(last) - 1));
      lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(begin),
                  lines.begin() + static_cast<std::ptrdiff_t>(end));
      if (i == 0 && !text.empty()) lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(begin), text);
    }
  }
  return of_lines(file.path, lines, diagnostics);
}

IniFile without_key(const IniFile& file, const std::string& section, const std::string& key) {
  const IniSection* in = file.find_or_default(section);
  const IniValue* value = in == nullptr ? nullptr : in->find(key);
  if (value == nullptr) return file;
  // A line of a template has the key of other layers, too.
  if (const IniFile flat = without_templates(file); !value->from_default && flat.text != file.text)
    return without_key(flat, section, key);
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
