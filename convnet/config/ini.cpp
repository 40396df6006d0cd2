#include "convnet/config/ini.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/text_file.h"
#include "convnet/config/ini_expand.h"
#include "convnet/config/ini_lines.h"
#include "convnet/config/text.h"

namespace convnet {

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

const IniSection* IniFile::find_or_default(std::string_view name) const {
  const IniSection* own = find(name);
  return own == nullptr && !defaults.values.empty() ? &defaults : own;
}

namespace {

/// Returns whether the text has several lines, all of which end with a CR alone.
bool has_only_carriage_returns(std::string_view text) {
  const std::size_t first = text.find('\r');
  return first != std::string_view::npos && text.find('\n') == std::string_view::npos &&
         text.find_first_not_of('\r', first) != std::string_view::npos;
}

}  // namespace

IniFile parse_ini(std::string path, std::string text, Diagnostics& diagnostics) {
  IniFile ini{std::move(path), std::move(text), {}};
  const auto file = std::make_shared<const std::string>(ini.path);
  const auto refuse = [&](std::int64_t line, const std::string& what) {
    diagnostics.error({file, static_cast<int>(line)}, what);
    ini.text.clear();
    return ini;
  };
  if (ini.text.size() > kMaxIniBytes) return refuse(0, "is larger than 4 MiB; is this a layer file?");
  if (const std::optional<TextMistake> mistake = text_mistake(ini.text, NotUtf8::is_latin1))
    return refuse(mistake->line, mistake->what);
  if (has_only_carriage_returns(ini.text))
    return refuse(0,
                  "has the line ends of old Macs (CR alone), which make it one line; save it with those of "
                  "Unix (LF) or Windows (CR LF)");
  ini.text = as_utf8(std::move(ini.text));
  const RawFile raw = read_lines(without_byte_order_mark(ini.text), file, diagnostics);
  const std::size_t errors_before = diagnostics.error_count();
  const FlatFile flat = use_templates(raw, diagnostics);
  ini.lacks_sections = diagnostics.error_count() > errors_before;
  ini.sections = expand_sections(flat.sections, diagnostics);
  ini.defaults = expand_defaults(raw.sections[0]);
  for (const RawTemplate& t : raw.templates) ini.templates.push_back({t.name, t.where});
  return ini;
}

bool refers_to(const IniFile& file, std::string_view key) {
  const std::string text = lower(file.text);
  const auto is_word = [&](std::size_t at) {
    const char c = at < text.size() ? text[at] : ' ';
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (std::size_t begin = text.find("%("), end = 0; begin != std::string::npos;
       begin = text.find("%(", end)) {
    end = std::min(text.find(")s", begin), text.size());
    const std::string_view reference = std::string_view(text).substr(0, end);
    for (std::size_t at = reference.find(key, begin); at != std::string::npos;
         at = reference.find(key, at + 1))
      if (!is_word(at - 1) && !is_word(at + key.size())) return true;
  }
  return false;
}

IniFile read_ini(const std::string& path, Diagnostics& diagnostics) {
  try {
    return parse_ini(path, read_bytes(path, kMaxIniBytes), diagnostics);
  } catch (const InputError& wrong) {
    const std::string reason = std::string(wrong.what()).substr(path.size() + 2);  // without "PATH: "
    diagnostics.error({std::make_shared<const std::string>(path), 0}, reason);
    return IniFile{path, "", {}};
  }
}

}  // namespace convnet
