// Reads the lines of an INI file into sections. The inih library takes lines apart.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"

namespace convnet {

/// The most bytes that an INI file may have.
inline constexpr std::size_t kMaxIniBytes = std::size_t{4} << 20;

/// The most layers of a file, as it is or with what its templates make, and the most bytes of a name.
inline constexpr std::size_t kMostSections = 10000, kLongestName = 1000;

/// Lines of a file, counted from 1, from the first to the last.
struct LineRange {
  int first = 0, last = 0;
};

/// A section whose values are not interpolated yet.
struct RawSection {
  IniSection section;
  std::unordered_map<std::string, std::size_t> index = {};  ///< key -> position in section.values
  /// For each header of the section: the lines from there to its last value.
  std::vector<LineRange> parts = {};
  /// For a section of a template: the comments above its header and between its values.
  std::vector<std::string> comments = {};
};

/// A parameter of a template.
struct TemplateParameter {
  std::string name;                     ///< lower case
  std::string written;                  ///< as the user wrote it
  std::optional<std::string> fallback;  ///< its default, not interpolated; nullopt: a use must give it
};

/// Sections between "[template NAME(PARAMETERS)]" and "[end]".
struct RawTemplate {
  std::string name;
  SourceLocation where;
  std::vector<TemplateParameter> parameters = {};
  std::vector<RawSection> sections = {};  ///< in file order; two may have the same name
  int last_line = 0;                      ///< the line with [end]
};

/// The lines of a file, taken apart.
struct RawFile {
  std::vector<RawSection> sections;  ///< in order of first appearance, [DEFAULT] always the first of them
  std::vector<RawTemplate> templates;
};

/// Returns whether Python's ConfigParser takes the line for a comment: the word "rem", in any case, in the
/// first column.
bool is_rem_comment(std::string_view line);

/// Reads `text`, which has at most kMaxIniBytes and no NUL. Reports mistakes of single lines.
RawFile read_lines(std::string_view text, std::shared_ptr<const std::string> file, Diagnostics& diagnostics);

/// Returns the name of the template that a section's header begins, with its parameters; nullopt if the
/// header is another.
std::optional<std::string_view> template_header(std::string_view name);

/// Returns the beginning of a message about a key of the section.
std::string in_section(const RawSection& raw);

}  // namespace convnet
