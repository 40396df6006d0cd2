// Templates of sections and repeated sections in INI files; docs/cfg.md explains them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "convnet/config/ini_lines.h"

namespace convnet {

/// A section of a file without templates.
struct FlatSection {
  RawSection raw;  ///< its values may have references to keys of its own and of [DEFAULT]
  /// The section of the file that made it: a use of a template, a repeated section or the section itself.
  std::size_t made_by = 0;
  bool is_made = false;                  ///< by a template, a repetition or a condition
  std::vector<std::size_t> makers = {};  ///< the section of the file that each value is from
};

/// A file without templates.
struct FlatFile {
  std::vector<FlatSection> sections;  ///< [DEFAULT] is the first
  /// For each section of the file: whether it stands for itself, and what %(above)s is in it.
  std::vector<bool> is_plain;
  std::vector<std::string> above;
};

/// Returns the sections of the file with each use of a template replaced by the template's sections, and each
/// repeated section by its copies. Reports everything that is wrong with templates and their uses. A file
/// without them stays as it is.
FlatFile use_templates(const RawFile& file, Diagnostics& diagnostics);

/// Returns whether a file has templates, repeated sections or other things that only use_templates() knows.
bool has_templates(const RawFile& file);

}  // namespace convnet
