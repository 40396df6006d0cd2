// Inheritance from [DEFAULT] and references %(key)s in INI files.
#pragma once

#include <vector>

#include "convnet/config/ini_templates.h"

namespace convnet {

/// Returns the final sections for those of a file without templates, the first of which is [DEFAULT]: without
/// that, with the values that they inherit from it, and with %(key)s replaced. Reports wrong references. If a
/// file grows beyond the limit, the sections after that are missing.
std::vector<IniSection> expand_sections(const std::vector<FlatSection>& flat, Diagnostics& diagnostics);

/// Returns what a section without a line would inherit from [DEFAULT]. A value with a wrong reference stays
/// as it is written, and is not reported, because only layers without a section have it.
IniSection expand_defaults(const RawSection& defaults);

}  // namespace convnet
