#include "convnet/config/ini.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "convnet/base/file.h"
#include "convnet/base/utf8.h"
#include "convnet/config/ini_expand.h"
#include "convnet/config/ini_lines.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

std::string latin1_to_utf8(std::string_view text) {
  std::string out;
  for (const char c : text) append_utf8(out, static_cast<unsigned char>(c));
  return out;
}

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
  if (rest.size() > max_ini_bytes) {
    diagnostics.error({file, 0}, "is larger than 4 MiB; is this a layer file?");
    return ini;
  }
  if (const std::size_t nul = rest.find('\0'); nul != std::string_view::npos) {
    const auto line = 1 + std::count(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(nul), '\n');
    diagnostics.error({file, static_cast<int>(line)}, "holds a NUL byte; this is not a text file");
    return ini;
  }
  ini.sections =
      expand_sections(read_sections(without_byte_order_mark(rest), file, diagnostics), diagnostics);
  return ini;
}

IniFile read_ini(const std::string& path, Diagnostics& diagnostics) {
  const auto refuse = [&](int code) {
    diagnostics.error({std::make_shared<const std::string>(path), 0}, "cannot be read: " + error_text(code));
    return IniFile{path, "", {}};
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return refuse(errno);
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() <= max_ini_bytes) {
    const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get());
    if (count == 0) break;
    text.append(buffer.data(), count);
  }
  if (std::ferror(file.get())) return refuse(errno);
  return parse_ini(path, is_utf8(text) ? std::move(text) : latin1_to_utf8(text), diagnostics);
}

}  // namespace convnet
