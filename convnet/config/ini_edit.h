// Changes single keys of an INI file and leaves the rest of its text as it is. A key of a section that a
// template makes is set in a section of the same name at the end of the file, which wins. Where that is not
// possible, as for keys that are removed, the templates are replaced by what they make (flat_text()).
#pragma once

#include <optional>
#include <string>

#include "convnet/config/ini.h"

namespace convnet {

/// Returns the file with `key` of a section set to `text`, or removed if `text` is nullopt (an inherited key
/// stays). Only the line of the key changes, so that all others keep their numbers; an inherited key that is
/// set gets a new line.
IniFile with_key(const IniFile& file, const std::string& section, const std::string& key,
                 const std::optional<std::string>& text);

/// Returns whether a section, which may be DEFAULT, has `key` itself, in upper or lower case.
bool has_own_key(const IniFile& file, const std::string& section, const std::string& key);

/// Returns the file with `key` of a section, which may be DEFAULT, set to `text`. All other lines keep their
/// numbers: a key that the section does not have itself is added at the end of the file, below another header
/// of the section. All that is wrong with the new file is reported.
IniFile with_value(const IniFile& file, const std::string& section, const std::string& key,
                   const std::string& text, Diagnostics& diagnostics);

/// Returns the file with `text`, lines of any sections or none, in place of the lines of a section. Comments
/// above the section's header stay. All that is wrong with the new file is reported.
IniFile with_section(const IniFile& file, const std::string& section, const std::string& text,
                     Diagnostics& diagnostics);

/// Returns the file without the line of `key` that a section has or inherits from [DEFAULT], and without the
/// lines that continue it. Returns the file unchanged if there is no such key.
IniFile without_key(const IniFile& file, const std::string& section, const std::string& key);

}  // namespace convnet
