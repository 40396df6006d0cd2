// INI files as users of cuda-convnet write them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convnet/config/diagnostics.h"

namespace convnet {

/// A key of a section and its value.
struct IniValue {
  std::string key;      ///< lower case: keys are case-insensitive
  std::string written;  ///< the key as the user wrote it
  std::string text;  ///< comments and outer blanks removed, continuation lines joined by '\n', interpolated
  SourceLocation where;         ///< the line with the key
  bool from_default = false;    ///< inherited from [DEFAULT]; such a key is never reported as unknown
  bool is_referred_to = false;  ///< a %(key)s of its section has the value
  /// A mistake in a %(key)s of the value has been reported. The text means nothing then, and nothing more is
  /// said about it.
  bool is_wrong = false;
};

/// A section, with the keys that it inherits from [DEFAULT].
struct IniSection {
  std::string name;  ///< case kept
  SourceLocation where;
  std::vector<IniValue> values;  ///< in file order, one per key; inherited ones last
  /// Returns the value of `key`, in upper or lower case, or null.
  const IniValue* find(std::string_view key) const;
};

/// The section with values for all layers.
inline constexpr const char* kDefaultSection = "DEFAULT";

/// A template of a file.
struct IniTemplate {
  std::string name;
  SourceLocation where;
};

/// A parsed file.
struct IniFile {
  std::string path;
  std::string text;                  ///< the whole file as read
  std::vector<IniSection> sections;  ///< in order of first appearance, without [DEFAULT]
  /// The values of [DEFAULT] for layers without a section; one with a wrong %(key)s stays as it is written.
  IniSection defaults = {};
  /// The names and places of the file's templates, whose uses are among the sections already.
  std::vector<IniTemplate> templates = {};
  bool lacks_sections = false;  ///< because of reported mistakes in templates and their uses
  const IniSection* find(std::string_view name) const;
  /// Returns the section, or `defaults` if there is none; null if [DEFAULT] has no values either.
  const IniSection* find_or_default(std::string_view name) const;
};

/// Parses `text`, which may have up to 4 MiB. Mistakes are reported with their line: a line that is neither
/// section nor key=value, a key before any section, an unclosed '[', an empty section name, unknown or
/// recursive %(key)s, a lone '%', a NUL byte, mistakes in templates and their uses. If a section has a key
/// twice, the last value wins, with a warning. Sections of the same name are merged. An indented line that
/// continues a value but looks like a key of its own gets a warning.
IniFile parse_ini(std::string path, std::string text, Diagnostics& diagnostics);

/// Returns whether the text of the file has a reference %(key)s to a key in lower case, or an expression with
/// it.
bool refers_to(const IniFile& file, std::string_view key);

/// Reads and parses a file. A file that is not valid UTF-8 is read as Latin-1; IniFile::text is always UTF-8.
/// A file that cannot be read is an error in `diagnostics`.
IniFile read_ini(const std::string& path, Diagnostics& diagnostics);

}  // namespace convnet
