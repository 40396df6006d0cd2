#include "convnet/config/ini_lines.h"

#include <fmt/format.h>
#include <ini.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>
#include <new>
#include <utility>

#include "convnet/base/printable.h"
#include "convnet/config/params.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

/// Sets inih's options, which are globals of the library. By default it cuts lines at 200 characters.
void configure_inih() {
  static std::once_flag once;
  std::call_once(once, [] {
    ini_use_stack = false;
    ini_allow_realloc = true;
    ini_max_line = static_cast<int>(2 * kMaxIniBytes);
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

/// A character that looks like a blank, or like nothing, but counts as a letter.
struct UnseenCharacter {
  std::string_view utf8, name, advice;
};
constexpr std::string_view kOrdinary = "type an ordinary one", kRemove = "remove it";
constexpr auto kUnseenCharacters =
    std::to_array<UnseenCharacter>({{"\xC2\xA0", "no-break space (U+00A0)", kOrdinary},
                                    {"\xE2\x80\xAF", "narrow no-break space (U+202F)", kOrdinary},
                                    {"\xE3\x80\x80", "ideographic space (U+3000)", kOrdinary},
                                    {"\xE2\x80\x8B", "zero-width space (U+200B)", kRemove},
                                    {"\xE2\x81\xA0", "word joiner (U+2060)", kRemove},
                                    {"\xEF\xBB\xBF", "byte order mark (U+FEFF)", kRemove},
                                    {"\xC2\xAD", "soft hyphen (U+00AD)", kRemove}});

/// Returns a warning about the first character of the line that cannot be seen, or "".
std::string unseen_in(std::string_view line) {
  std::size_t first = std::string_view::npos;
  const UnseenCharacter* found = nullptr;
  for (const UnseenCharacter& character : kUnseenCharacters) {
    if (const std::size_t at = line.find(character.utf8); at < first) {
      first = at;
      found = &character;
    }
  }
  if (found == nullptr) return "";
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
  const auto column =
      1 + std::count_if(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(first), begins);
  return "the line has a " + std::string(found->name) + " in column " + std::to_string(column) +
         ", which does not count as a blank; " + std::string(found->advice);
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

  RawFile read() {
    configure_inih();
    open_section(kDefaultSection);
    const int result = ini_parse_stream(&Reader::on_read, this, &Reader::on_value, this);
    if (failure_) std::rethrow_exception(failure_);
    if (result == -2) throw std::bad_alloc();
    if (template_) {
      diagnostics_.error(template_->where,
                         "template " + excerpt(template_->name) + " has no [end] below its sections");
      template_->last_line = line_;
      file_sections_.templates.push_back(*std::move(template_));
    }
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      const std::size_t owner = owners_[i];
      std::vector<RawSection>& to =
          owner == 0 ? file_sections_.sections : file_sections_.templates[owner - 1].sections;
      to.push_back(std::move(sections_[i]));
    }
    return std::move(file_sections_);
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
    if (body.empty() || is_rem_comment(line)) {
      if (template_ && !trim(line).empty()) comments_.emplace_back(trim(line));
      return "";
    }
    if (const std::string unseen = unseen_in(strip_comment(line)); !unseen.empty())
      diagnostics_.warning(here(), unseen);
    if (body[0] == '[' && !(indented_ && after_key_)) return header(trim(line));
    if (!indented_ && body.ends_with(']') && body.find_first_of("=:[") == std::string_view::npos) {
      error("']' without '[' in " + excerpt(body));
      return header("[" + std::string(body));  // most likely meant: saves the user errors that follow
    }
    untaken_ = body;
    return (indented_ ? " " : "") + std::string(body);
  }

  std::string header(std::string_view text) {
    after_key_ = behind_end_ = false;
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
    if (const auto signature = template_header(name)) {
      begin_template(*signature);
      return std::string("[") + dropped_section + "]";
    }
    if (template_ && name == "end") {
      end_template();
      behind_end_ = true;
      return std::string("[") + dropped_section + "]";
    }
    if (name.size() > kLongestName) {
      error(fmt::format("section {} has a name of {} bytes; names may have {}", excerpt(name), name.size(),
                        kLongestName));
      return std::string("[") + dropped_section + "]";
    }
    const bool is_new = template_ || !names_.contains(std::string(name));
    if (is_new && sections_.size() > kMostSections) {  // the first one is [DEFAULT]
      if (!std::exchange(too_many_reported_, true))
        error(fmt::format("the file has more than {} sections", kMostSections));
      return std::string("[") + dropped_section + "]";
    }
    if (template_ && name == kDefaultSection) {
      error("[DEFAULT] stands in template " + excerpt(template_->name) +
            "; end the template with [end] above it");
      end_template();
    }
    return "[" + std::to_string(open_section(std::string(name))) + "]";
  }

  std::size_t open_section(std::string name) {
    std::size_t index = sections_.size();
    bool fresh = true;
    if (!template_) {
      const auto [found, is_new] = names_.emplace(name, index);
      index = found->second;
      fresh = is_new;
    }
    if (fresh) {
      sections_.push_back({{std::move(name), here(), {}}});
      owners_.push_back(template_ ? file_sections_.templates.size() + 1 : 0);
    }
    if (line_ > 0) sections_[index].parts.push_back({line_, line_});
    if (template_) sections_[index].comments = std::exchange(comments_, {});
    return index;
  }

  void begin_template(std::string_view signature) {
    if (template_) {
      error("a template stands in template " + excerpt(template_->name) + ", which line " +
            std::to_string(template_->where.line) + " begins; end that with [end] above this one");
      end_template();
    }
    template_ = RawTemplate{std::string(trim(signature.substr(0, signature.find('(')))), here()};
    comments_.clear();
    if (template_->name.empty()) error("a template without a name: [template NAME(PARAMETERS)]");
    const std::size_t open = signature.find('(');
    if (open == std::string_view::npos) return;
    std::string_view list = signature.substr(open + 1);
    if (!list.ends_with(')'))
      return error("the parameters of template " + excerpt(template_->name) +
                   " lack a ')': [template NAME(PARAMETERS)]");
    list.remove_suffix(1);
    read_parameters(list);
  }

  void read_parameters(std::string_view list) {
    static constexpr std::array<std::string_view, 7> kTaken = {"name", "i",  "above", "inputs",
                                                               "type", "if", "repeat"};
    constexpr std::size_t most_parameters = 256;
    for (const std::string& item : split_list(list)) {
      if (template_->parameters.size() == most_parameters)
        return error(fmt::format("template {} has more than {} parameters", excerpt(template_->name),
                                 most_parameters));
      const std::size_t equals = item.find('=');
      TemplateParameter parameter;
      parameter.written = trim(std::string_view(item).substr(0, equals));
      parameter.name = lower(parameter.written);
      if (equals != std::string::npos) parameter.fallback = trim(std::string_view(item).substr(equals + 1));
      const auto is_word = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
      };
      const auto says = [&](const std::string& what) {
        error("parameter " + excerpt(parameter.written) + " of template " + excerpt(template_->name) + " " +
              what);
      };
      const auto same = [&](const TemplateParameter& other) { return other.name == parameter.name; };
      std::vector<TemplateParameter>& all = template_->parameters;
      if (parameter.name.empty() || !std::all_of(parameter.name.begin(), parameter.name.end(), is_word) ||
          (parameter.name[0] >= '0' && parameter.name[0] <= '9')) {
        says("needs a name of letters, digits and '_'");
      } else if (std::find(kTaken.begin(), kTaken.end(), parameter.name) != kTaken.end()) {
        says("has a name that every template knows already");
      } else if (std::find_if(all.begin(), all.end(), same) != all.end()) {
        says("is given twice");
      } else {
        all.push_back(std::move(parameter));
      }
    }
  }

  void end_template() {
    template_->last_line = line_;
    file_sections_.templates.push_back(*std::move(template_));
    template_.reset();
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
    if (section == dropped_section) {
      if (template_)
        error("key " + excerpt(key) + " stands in no section of template " + excerpt(template_->name) +
              "; its parameters stand in brackets behind its name");
      if (std::exchange(behind_end_, false))
        error("key " + excerpt(key) + " stands behind the [end] of a template, in no section");
      return;
    }
    set_value(sections_[to_number<std::size_t>(section).value()], key, text == "\"\"" ? "" : text);
  }

  void set_value(RawSection& raw, std::string_view key, std::string_view text) {
    std::vector<IniValue>& values = raw.section.values;
    const auto [found, fresh] = raw.index.emplace(lower(key), values.size());
    if (fresh) {
      values.emplace_back();
    } else {
      const int earlier = values[found->second].where.line;
      const bool continues = !raw.parts.empty() && earlier < raw.parts.back().first;
      diagnostics_.warning(here(), in_section(raw) + excerpt(key) +
                                       " is given twice; this one replaces line " + std::to_string(earlier) +
                                       (continues ? ", because the section continues that of line " +
                                                        std::to_string(raw.section.where.line)
                                                  : std::string()));
    }
    if (!raw.parts.empty()) raw.parts.back().last = line_;
    part_ = raw.parts.empty() ? nullptr : &raw.parts.back();
    if (template_) std::move(comments_.begin(), comments_.end(), std::back_inserter(raw.comments));
    comments_.clear();
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
    if (part_ != nullptr) part_->last = line_;
    if (!target_->text.empty()) target_->text += '\n';
    target_->text += text;
  }

  SourceLocation here() const { return {file_, line_}; }
  void error(const std::string& message) { diagnostics_.error(here(), message); }

  std::string_view rest_;  ///< the lines not read yet
  std::shared_ptr<const std::string> file_;
  Diagnostics& diagnostics_;
  RawFile file_sections_;             ///< the templates that have ended
  std::vector<RawSection> sections_;  ///< of the file and its templates
  std::vector<std::size_t> owners_;   ///< for each section: 0 for the file, else the number of its template
  std::optional<RawTemplate> template_;                 ///< the one whose [end] has not come
  std::vector<std::string> comments_;                   ///< in a template: those that no section has yet
  std::unordered_map<std::string, std::size_t> names_;  ///< indices of sections by name
  std::exception_ptr failure_;

  int line_ = 0;
  std::string cleaned_;         ///< the current line as inih gets it
  std::size_t sent_ = 0;        ///< bytes of it that inih has
  std::string_view untaken_;    ///< the current line, until inih recognises it
  bool indented_ = false;       ///< the current line
  bool after_key_ = false;      ///< an indented line continues a value
  IniValue* target_ = nullptr;  ///< that value; null if its section is dropped
  LineRange* part_ = nullptr;   ///< the lines of its section
  bool orphan_reported_ = false, too_many_reported_ = false;
  bool behind_end_ = false;  ///< the last header is an [end], and no key behind it has been reported
};

}  // namespace

bool is_rem_comment(std::string_view line) {
  return line.size() >= 3 && lower(line.substr(0, 3)) == "rem" && (line.size() == 3 || is_blank(line[3]));
}

RawFile read_lines(std::string_view text, std::shared_ptr<const std::string> file, Diagnostics& diagnostics) {
  return Reader(text, std::move(file), diagnostics).read();
}

std::optional<std::string_view> template_header(std::string_view name) {
  constexpr std::string_view kWord = "template";
  if (!name.starts_with(kWord) || name.size() == kWord.size() || !is_blank(name[kWord.size()]))
    return std::nullopt;
  return trim(name.substr(kWord.size()));
}

std::string in_section(const RawSection& raw) { return "section " + excerpt(raw.section.name) + ": "; }

}  // namespace convnet
