// Writes an INI file without its templates.
#pragma once

#include <string>

#include "convnet/config/ini.h"

namespace convnet {

/// Returns the text of the file with the sections that its templates and repetitions make in place of them;
/// it parses to the same sections. All other lines stay as they are, comments among them. Comments of a
/// template stand above the sections of its first use. Returns the text as it is if the file has no
/// templates.
std::string flat_text(const IniFile& file);

/// Returns the file with flat_text().
IniFile without_templates(const IniFile& file);

}  // namespace convnet
