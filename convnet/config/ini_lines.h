// Reads the lines of an INI file into sections. The inih library takes lines apart.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"

namespace convnet {

/// The most bytes that an INI file may have.
inline constexpr std::size_t max_ini_bytes = std::size_t{4} << 20;

/// A section whose values are not interpolated yet.
struct RawSection {
  IniSection section;
  std::unordered_map<std::string, std::size_t> index;  ///< key -> position in section.values
};

/// Returns the sections of `text` in order of first appearance, [DEFAULT] always the first of them. Reports
/// mistakes of single lines. `text` has at most max_ini_bytes and no NUL.
std::vector<RawSection> read_sections(std::string_view text, std::shared_ptr<const std::string> file,
                                      Diagnostics& diagnostics);

/// Returns the beginning of a message about a key of the section.
std::string in_section(const RawSection& raw);

}  // namespace convnet
