#include "convnet/config/ini_flat.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

#include "convnet/base/text_file.h"
#include "convnet/config/ini_templates.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// Returns the section as it would stand in a file, with those of its values that section `maker` has made.
std::string section_text(const FlatSection& section, std::size_t maker) {
  std::string text;
  if (section.made_by == maker)
    for (const std::string& comment : section.raw.comments) text += comment + "\n";
  text += "[" + section.raw.section.name + "]\n";
  const std::vector<IniValue>& values = section.raw.section.values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (section.makers[i] != maker) continue;
    text += values[i].written + "=";
    for (const char c : values[i].text) text += c == '\n' ? "\n  " : std::string(1, c);
    text += "\n";
  }
  return text + "\n";
}

/// Replaces %(above)s in the value of a line.
std::string with_above(std::string_view line, const std::string& above) {
  constexpr std::string_view kAbove = "%(above)s";
  std::string out;
  if (!line.empty() && !is_blank(line[0])) {
    out = line.substr(0, line.find_first_of("=:"));  // the key
    line.remove_prefix(out.size());
  }
  while (!line.empty()) {
    if (line.starts_with("%%")) {
      out += "%%";
      line.remove_prefix(2);
    } else if (lower(line.substr(0, kAbove.size())) == kAbove) {
      for (const char c : above) out.append(c == '%' ? 2 : 1, c);
      line.remove_prefix(kAbove.size());
    } else {
      out += line[0];
      line.remove_prefix(1);
    }
  }
  return out;
}

/// A change that makes a line of the file one of the flat file.
struct LineEdit {
  bool is_dropped = false;
  std::string instead = {};
  const std::string* above = nullptr;  ///< what %(above)s is; null: it stays as it is
};

class FlatWriter {
 public:
  FlatWriter(std::string_view text, const RawFile& file, const FlatFile& flat)
      : lines_(lines_of(text)), edits_(lines_.size() + 1) {
    for (const RawTemplate& t : file.templates) drop_template(t);
    std::map<std::size_t, std::string> made;  // the text of what each section of the file makes
    for (std::size_t i = 1; i < flat.sections.size(); ++i) {
      const FlatSection& section = flat.sections[i];
      std::vector<std::size_t> makers = section.makers;
      makers.push_back(section.made_by);
      std::sort(makers.begin(), makers.end());
      makers.erase(std::unique(makers.begin(), makers.end()), makers.end());
      for (const std::size_t maker : makers)
        if (!flat.is_plain[maker]) made[maker] += section_text(section, maker);
    }
    for (std::size_t i = 1; i < file.sections.size(); ++i) {
      const RawSection& raw = file.sections[i];
      for (const LineRange& part : raw.parts) {
        for (int line = part.first; line <= part.last; ++line) {
          LineEdit& edit = edits_[static_cast<std::size_t>(line - 1)];
          const bool is_header = line == part.first;
          if (flat.is_plain[i])
            edit.above = is_header || raw.index.contains("above") || file.sections[0].index.contains("above")
                             ? nullptr
                             : &flat.above[i];
          else
            edit.is_dropped = true;
        }
      }
      if (!flat.is_plain[i]) edits_[static_cast<std::size_t>(raw.parts.at(0).first - 1)].instead = made[i];
    }
  }

  std::string text() const {
    std::string out;
    bool after_blank = false;  // a blank line after what was dropped is not needed
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const LineEdit& edit = edits_[i];
      if (edit.is_dropped) {
        out += edit.instead;
        after_blank = out.empty() || out.ends_with("\n\n");
        continue;
      }
      if (after_blank && trim(lines_[i]).empty()) continue;
      after_blank = false;
      out += (edit.above == nullptr ? std::string(lines_[i]) : with_above(lines_[i], *edit.above)) + "\n";
    }
    return out;
  }

 private:
  /// Drops a template with the comments that stand directly above it, unless the file begins with them.
  void drop_template(const RawTemplate& t) {
    auto first = static_cast<std::size_t>(t.where.line - 1);
    for (std::size_t i = first; i < static_cast<std::size_t>(t.last_line); ++i) edits_[i].is_dropped = true;
    const auto is_comment = [&](std::size_t line) {
      return lines_[line].starts_with('#') || lines_[line].starts_with(';');
    };
    std::size_t comment = first;
    while (comment > 0 && !edits_[comment - 1].is_dropped && is_comment(comment - 1)) --comment;
    if (comment == 0) return;
    for (; comment < first; ++comment) edits_[comment].is_dropped = true;
  }

  std::vector<std::string_view> lines_;
  std::vector<LineEdit> edits_;
};

}  // namespace

std::string flat_text(const IniFile& file) {
  Diagnostics reported_before;
  const std::string_view text = without_byte_order_mark(file.text);
  const RawFile raw = read_lines(text, nullptr, reported_before);
  if (!has_templates(raw)) return file.text;
  return FlatWriter(text, raw, use_templates(raw, reported_before)).text();
}

IniFile without_templates(const IniFile& file) {
  Diagnostics reported_before;
  return parse_ini(file.path, flat_text(file), reported_before);
}

}  // namespace convnet
