#include "convnet/config/ini.h"

#include <ini.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "convnet/base/utf8.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

constexpr std::size_t max_file_bytes = std::size_t{4} << 20;
/// Limits how much inheritance from [DEFAULT] and %(key)s may add to a file, because a few lines could expand
/// to any amount of text.
constexpr std::size_t max_expanded_bytes = std::size_t{16} << 20;
/// Bytes that each inherited value and each reference count in addition to their text.
constexpr std::size_t expansion_overhead = 128;
/// The maximal depth of references, as in Python's ConfigParser.
constexpr std::size_t max_nesting = 10;

/// A section whose values are not interpolated yet.
struct RawSection {
  IniSection section;
  std::unordered_map<std::string, std::size_t> index;  ///< key -> position in section.values
};

std::string in_section(const RawSection& raw) { return "section " + excerpt(raw.section.name) + ": "; }

/// Sets inih's options, which are globals of the library. By default it cuts lines at 200 characters.
void configure_inih() {
  static std::once_flag once;
  std::call_once(once, [] {
    ini_use_stack = false;
    ini_allow_realloc = true;
    ini_max_line = static_cast<int>(2 * max_file_bytes);
    ini_allow_multiline = true;
    ini_allow_inline_comments = false;  // it knows only ';'; comments are gone before it sees a line
    ini_allow_no_value = false;
    ini_stop_on_first_error = false;
  });
}

/// Returns the text up to the first '#' or ';' at its beginning or after a blank.
std::string_view strip_comment(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((text[i] == '#' || text[i] == ';') && (i == 0 || is_blank(text[i - 1]))) return text.substr(0, i);
  return text;
}

/// Returns whether Python's ConfigParser takes the line for a comment: the word "rem", in any case, in the
/// first column.
bool is_rem_comment(std::string_view line) {
  return line.size() >= 3 && lower(line.substr(0, 3)) == "rem" && (line.size() == 3 || is_blank(line[3]));
}

/// The key of a continuation line that looks like "key = value", or "".
std::string_view key_of_assignment(std::string_view text) {
  std::size_t end = 0;
  const auto is_word = [](char c) {
    return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  while (end < text.size() && is_word(text[end])) ++end;
  const std::string_view rest = trim(text.substr(end));
  return rest.starts_with('=') || rest.starts_with(':') ? text.substr(0, end) : std::string_view();
}

/// Feeds inih one cleaned physical line after the other and collects what it makes of them. inih gets
/// section headers as "[number]", because its buffer for names holds 49 characters.
class Reader {
 public:
  Reader(std::string_view text, std::shared_ptr<const std::string> file, Diagnostics& diagnostics)
      : rest_(text), file_(std::move(file)), diagnostics_(diagnostics) {}

  /// The sections in order of first appearance, [DEFAULT] always the first of them.
  std::vector<RawSection> read() {
    configure_inih();
    open_section("DEFAULT");
    const int result = ini_parse_stream(&Reader::on_read, this, &Reader::on_value, this);
    if (failure_) std::rethrow_exception(failure_);
    if (result == -2) throw std::bad_alloc();
    return std::move(sections_);
  }

 private:
  static constexpr const char* dropped_section = "x";

  // The two callbacks run under C code, which no exception may cross.
  static char* on_read(char* buffer, int size, void* self) noexcept {
    Reader& reader = *static_cast<Reader*>(self);
    try {
      return reader.failure_ ? nullptr : reader.read_piece(buffer, static_cast<std::size_t>(size));
    } catch (...) {
      reader.failure_ = std::current_exception();
      return nullptr;
    }
  }

  static int on_value(void* self, const char* section, const char* key, const char* text) noexcept {
    Reader& reader = *static_cast<Reader*>(self);
    try {
      reader.take(section, key, text);
    } catch (...) {
      reader.failure_ = std::current_exception();
    }
    return 1;
  }

  /// Like fgets: at most size-1 bytes, up to the end of the line.
  char* read_piece(char* buffer, std::size_t size) {
    if (sent_ == cleaned_.size() && !next_line()) return nullptr;
    const std::size_t count = std::min(size - 1, cleaned_.size() - sent_);
    std::memcpy(buffer, cleaned_.data() + sent_, count);
    buffer[count] = '\0';
    sent_ += count;
    return buffer;
  }

  bool next_line() {
    if (!untaken_.empty()) error("expected [section] or key=value, found " + excerpt(untaken_));
    untaken_ = {};
    if (rest_.empty()) return false;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    cleaned_ = clean(line) + '\n';
    sent_ = 0;
    return true;
  }

  /// Returns the text of a line as inih should see it, without line break.
  std::string clean(std::string_view line) {
    indented_ = !line.empty() && is_blank(line[0]);
    const std::string_view body = trim(strip_comment(line));
    if (body.empty() || is_rem_comment(line)) return "";
    if (body[0] == '[' && !(indented_ && after_key_)) return header(trim(line));
    untaken_ = body;
    return (indented_ ? " " : "") + std::string(body);
  }

  std::string header(std::string_view text) {
    after_key_ = false;
    target_ = nullptr;
    const std::size_t close = text.find(']');
    std::string_view name = trim(text.substr(1, close - 1));
    if (close == std::string_view::npos) {
      error("'[' without ']' in " + excerpt(text));
      name = trim(strip_comment(text.substr(1)));  // most likely meant: saves the user errors that follow
    } else if (const auto junk = trim(strip_comment(text.substr(close + 1))); !junk.empty()) {
      diagnostics_.warning(here(), "the text after the section's ']' is ignored: " + excerpt(junk));
    }
    if (name.empty()) {
      if (close != std::string_view::npos) error("a section without a name");
      return std::string("[") + dropped_section + "]";
    }
    return "[" + std::to_string(open_section(std::string(name))) + "]";
  }

  std::size_t open_section(std::string name) {
    const auto [found, fresh] = names_.emplace(name, sections_.size());
    if (fresh) sections_.push_back({{std::move(name), here(), {}}, {}});
    return found->second;
  }

  /// inih reports a continuation line as the previous key once more; only the line number distinguishes the
  /// two.
  void take(std::string_view section, std::string_view key, std::string_view text) {
    untaken_ = {};
    if (indented_ && after_key_) {
      if (target_) continue_value(text);
      return;
    }
    target_ = nullptr;
    after_key_ = !key.empty();
    if (key.empty()) return error("a value without a key: " + excerpt("=" + std::string(text)));
    if (section.empty()) {
      if (!std::exchange(orphan_reported_, true))
        error("key " + excerpt(key) + " stands before any [section]");
      return;
    }
    if (section == dropped_section) return;
    set_value(sections_[to_number<std::size_t>(section).value()], key, text == "\"\"" ? "" : text);
  }

  void set_value(RawSection& raw, std::string_view key, std::string_view text) {
    std::vector<IniValue>& values = raw.section.values;
    const auto [found, fresh] = raw.index.emplace(lower(key), values.size());
    if (fresh) {
      values.emplace_back();
    } else {
      diagnostics_.warning(here(), in_section(raw) + excerpt(key) +
                                       " is given twice; this one replaces line " +
                                       std::to_string(values[found->second].where.line));
    }
    target_ = &values[found->second];
    *target_ = {found->first, std::string(key), std::string(text), here(), false};
  }

  void continue_value(std::string_view text) {
    const std::string_view key = key_of_assignment(text);
    if (!key.empty() || text[0] == '[')
      diagnostics_.warning(here(), "the indented line " + excerpt(text) + " continues the value of " +
                                       excerpt(target_->written) +
                                       " above; begin it in the first column if it is a " +
                                       (key.empty() ? "section" : "key") + " of its own");
    if (!target_->text.empty()) target_->text += '\n';
    target_->text += text;
  }

  SourceLocation here() const { return {file_, line_}; }
  void error(const std::string& message) { diagnostics_.error(here(), message); }

  std::string_view rest_;  ///< the lines not read yet
  std::shared_ptr<const std::string> file_;
  Diagnostics& diagnostics_;
  std::vector<RawSection> sections_;
  std::unordered_map<std::string, std::size_t> names_;  ///< indices of sections by name
  std::exception_ptr failure_;

  int line_ = 0;
  std::string cleaned_;         ///< the current line as inih gets it
  std::size_t sent_ = 0;        ///< bytes of it that inih has
  std::string_view untaken_;    ///< the current line, until inih recognises it
  bool indented_ = false;       ///< the current line
  bool after_key_ = false;      ///< an indented line continues a value
  IniValue* target_ = nullptr;  ///< that value; null if its section is dropped
  bool orphan_reported_ = false;
};

/// Makes the final sections: adds inherited values and replaces %(key)s.
class Expander {
 public:
  Expander(const RawSection& defaults, Diagnostics& diagnostics)
      : defaults_(defaults), default_reported_(defaults.section.values.size()), diagnostics_(diagnostics) {}

  /// Returns false, after reporting it, once the file has grown beyond the limit.
  bool good() const { return spent_ <= max_expanded_bytes; }

  IniSection expand(const RawSection& raw) {
    IniSection section{raw.section.name, raw.section.where, {}};
    for (const IniValue& value : raw.section.values) {
      std::string wrong;
      section.values.push_back(expand(raw, value, wrong));
      if (!wrong.empty()) report(raw, value, wrong);
      if (!good()) return section;
    }
    for (std::size_t i = 0; i < default_reported_.size(); ++i) {
      const IniValue& value = defaults_.section.values[i];
      if (raw.index.contains(value.key)) continue;
      std::string wrong = charge(value.text.size());
      if (wrong.empty()) {
        section.values.push_back(expand(raw, value, wrong));
        section.values.back().from_default = true;
      }
      if (!wrong.empty() && !default_reported_[i]) {
        report(raw, value, wrong);
        default_reported_[i] = true;
      }
      if (!good()) return section;
    }
    return section;
  }

 private:
  void report(const RawSection& raw, const IniValue& value, const std::string& wrong) {
    diagnostics_.error(value.where, in_section(raw) + excerpt(value.written) + " " + wrong);
  }

  /// On a mistake `wrong` says which, and the text stays as it is.
  IniValue expand(const RawSection& raw, const IniValue& value, std::string& wrong) {
    IniValue out = value;
    if (value.text.find('%') == std::string::npos) return out;
    std::string text;
    std::vector<std::string> chain = {value.key};
    wrong = substitute(raw, value.text, chain, text);
    if (wrong.empty()) out.text = trim(text);
    return out;
  }

  std::string charge(std::size_t bytes) {
    spent_ += bytes + expansion_overhead;
    return good() ? "" : "is too much: [DEFAULT] and %(key)s make more than 16 MiB of this file";
  }

  /// Appends `text` with its references replaced to `out`; returns what is wrong, or "".
  std::string substitute(const RawSection& raw, std::string_view text, std::vector<std::string>& chain,
                         std::string& out) {
    for (;;) {
      const std::size_t percent = std::min(text.find('%'), text.size());
      out += text.substr(0, percent);
      if (std::string wrong = charge(percent); !wrong.empty()) return wrong;
      if (percent == text.size()) return "";
      text.remove_prefix(percent + 1);
      if (text.starts_with('%')) {
        out += '%';
        text.remove_prefix(1);
        continue;
      }
      const std::size_t close = std::min(text.find(')'), text.size());
      if (!text.starts_with('(') || close < 2 || !text.substr(close).starts_with(")s"))
        return "has a lone '%'; a percent sign is written '%%', a reference '%(key)s'";
      const std::string key = lower(text.substr(1, close - 1));
      text.remove_prefix(close + 2);
      if (std::string wrong = refer(raw, key, chain, out); !wrong.empty()) return wrong;
    }
  }

  std::string refer(const RawSection& raw, const std::string& key, std::vector<std::string>& chain,
                    std::string& out) {
    const IniValue* value = look_up(raw, key);
    if (!value)
      return "refers to " + excerpt("%(" + key + ")s") +
             ", but neither the section nor [DEFAULT] has that key";
    if (std::find(chain.begin(), chain.end(), key) != chain.end())
      return "refers to itself through " + excerpt("%(" + key + ")s");
    if (chain.size() > max_nesting)
      return "has references nested more than " + std::to_string(max_nesting) + " deep";
    chain.push_back(key);
    std::string wrong = substitute(raw, value->text, chain, out);
    chain.pop_back();
    return wrong;
  }

  const IniValue* look_up(const RawSection& raw, const std::string& key) const {
    if (const auto own = raw.index.find(key); own != raw.index.end()) return &raw.section.values[own->second];
    const auto inherited = defaults_.index.find(key);
    return inherited == defaults_.index.end() ? nullptr : &defaults_.section.values[inherited->second];
  }

  const RawSection& defaults_;
  std::vector<bool> default_reported_;  ///< one error for a wrong default, however many sections inherit it
  Diagnostics& diagnostics_;
  std::size_t spent_ = 0;
};

}  // namespace

const IniValue* IniSection::find(std::string_view key) const {
  const std::string wanted = lower(key);
  for (const IniValue& value : values)
    if (value.key == wanted) return &value;
  return nullptr;
}

const IniSection* IniFile::find(std::string_view name) const {
  for (const IniSection& section : sections)
    if (section.name == name) return &section;
  return nullptr;
}

IniFile parse_ini(std::string path, std::string text, Diagnostics& diagnostics) {
  IniFile ini{std::move(path), std::move(text), {}};
  const auto file = std::make_shared<const std::string>(ini.path);
  std::string_view rest = ini.text;
  if (rest.size() > max_file_bytes) {
    diagnostics.error({file, 0}, "is larger than 4 MiB; is this a layer file?");
    return ini;
  }
  if (const std::size_t nul = rest.find('\0'); nul != std::string_view::npos) {
    const auto line = 1 + std::count(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(nul), '\n');
    diagnostics.error({file, static_cast<int>(line)}, "holds a NUL byte; this is not a text file");
    return ini;
  }
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);  // byte order mark

  const std::vector<RawSection> raw = Reader(rest, file, diagnostics).read();
  Expander expander(raw[0], diagnostics);
  for (std::size_t i = 1; i < raw.size() && expander.good(); ++i)
    ini.sections.push_back(expander.expand(raw[i]));
  return ini;
}

namespace {

std::string latin1_to_utf8(std::string_view text) {
  std::string out;
  for (const char c : text) append_utf8(out, static_cast<unsigned char>(c));
  return out;
}

}  // namespace

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

IniFile of_lines(const std::string& path, const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\n") + lines[i];
  Diagnostics known;
  return parse_ini(path, std::move(text), known);
}

/// Returns the line after those that continue the value of line `line`; both from 0.
std::size_t end_of_value(const std::vector<std::string>& lines, std::size_t line) {
  while (++line < lines.size()) {
    if (lines[line].find_first_not_of(" \t\r") == 0) break;
  }
  return line;
}

}  // namespace

IniFile with_key(const IniFile& file, const std::string& section, const std::string& key,
                 const std::optional<std::string>& text) {
  const IniSection& in = *file.find(section);
  const IniValue* value = in.find(key);
  const bool inherited = value == nullptr || value->from_default;
  if (inherited && !text) return file;
  std::vector<std::string> lines = lines_of(file.text);
  const std::string written = text ? key + "=" + *text : "# " + key + " was here";
  const auto line = static_cast<std::size_t>(inherited ? in.where.line : value->where.line);  // from 1
  if (inherited) {
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(line), written);
  } else {
    lines.at(line - 1) = written;
    const std::size_t end = end_of_value(lines, line - 1);
    for (std::size_t i = line; i < end; ++i) lines[i].clear();
  }
  return of_lines(file.path, lines);
}

IniFile without_key(const IniFile& file, const std::string& section, const std::string& key) {
  const IniValue* value = file.find(section)->find(key);
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

IniFile read_ini(const std::string& path, Diagnostics& diagnostics) {
  const auto refuse = [&](int code) {
    diagnostics.error({std::make_shared<const std::string>(path), 0},
                      "cannot be read: " + std::generic_category().message(code));
    return IniFile{path, "", {}};
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return refuse(errno);
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() <= max_file_bytes) {
    const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get());
    if (count == 0) break;
    text.append(buffer.data(), count);
  }
  if (std::ferror(file.get())) return refuse(errno);
  return parse_ini(path, is_utf8(text) ? std::move(text) : latin1_to_utf8(text), diagnostics);
}

}  // namespace convnet
