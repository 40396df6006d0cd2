// INI files as cuda-convnet users write them, over inih.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/config/diagnostics.h"

namespace convnet {

struct IniValue {
  std::string key;      ///< lower case: keys are case-insensitive
  std::string written;  ///< the key as the user wrote it
  std::string text;  ///< comments and outer blanks removed, continuation lines joined by '\n', interpolated
  SourceLocation where;       ///< the line with the key
  bool from_default = false;  ///< inherited from [DEFAULT]: never counts as unknown
};

struct IniSection {
  std::string name;  ///< case kept
  SourceLocation where;
  std::vector<IniValue> values;  ///< in file order, one per key; inherited ones last
  /// nullptr if absent. `key` in any case.
  const IniValue* find(std::string_view key) const;
};

struct IniFile {
  std::string path;
  std::string text;                  ///< the whole file as read
  std::vector<IniSection> sections;  ///< in order of first appearance, without [DEFAULT]
  const IniSection* find(std::string_view name) const;
};

/// Parses `text`, at most 4 MiB of it. Mistakes go to `diagnostics` with their line: a line that is neither
/// section nor key=value, a key before any section, an unclosed '[', an empty section name, unknown or
/// recursive %(key)s, a lone '%', a NUL byte. A key given twice in a section: the last wins, with a warning.
/// A section given twice is merged. A warning too: an indented line that continues a value but looks like a
/// key of its own.
IniFile parse_ini(std::string path, std::string text, Diagnostics& diagnostics);

/// The same file with `key` of a section set to `text`, or taken out (nullopt; an inherited key stays): its
/// line is changed, all others keep their place and number, but where an inherited key gets a line of its
/// own.
IniFile with_key(const IniFile& file, const std::string& section, const std::string& key,
                 const std::optional<std::string>& text);

/// The same file without the line of `key` that a section has or inherits from [DEFAULT], and without the
/// lines that continue it; the file itself where there is none.
IniFile without_key(const IniFile& file, const std::string& section, const std::string& key);

/// Reads and parses a file, as UTF-8 if it is that, else as Latin-1 (IniFile::text is always UTF-8); a file
/// that cannot be read is an error in `diagnostics`.
IniFile read_ini(const std::string& path, Diagnostics& diagnostics);

}  // namespace convnet
