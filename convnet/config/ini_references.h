// References %(key)s in the values and names of INI files, and sums and products of numbers in them.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/config/ini_lines.h"

namespace convnet {

/// Names that a template's section can refer to, in lower case, with their values. These are final: they are
/// inserted as they are.
using Scope = std::map<std::string, std::string, std::less<>>;

/// Replaces references. All references that one object replaces share a limit on how much text they make.
class References {
 public:
  /// `defaults` are the keys of [DEFAULT].
  explicit References(const RawSection& defaults) : defaults_(defaults) {}

  /// Counts an inherited value, a reference or a section. Returns what is wrong if the file has grown beyond
  /// the limit, else "".
  std::string charge(std::size_t bytes);
  bool good() const;

  /// Appends `text` to `out` with every %(key)s replaced by the value of the key in `section` or [DEFAULT].
  /// If neither has the key, it is an integer expression of keys, like %(4*width)s. `key` is the key that has
  /// the text. Returns what is wrong, or "".
  std::string replace_all(const RawSection& section, const std::string& key, std::string_view text,
                          std::string& out);
  /// Appends `text` to `out` with the names in `scope` and expressions replaced. References to other keys
  /// stay as they are, so that replace_all() can replace them later.
  std::string replace_scope(const RawSection& section, const Scope& scope, std::string_view text,
                            std::string& out);
  /// Does both.
  std::string resolve(const RawSection& section, const Scope& scope, std::string_view text, std::string& out);

  /// For each key of the section of the last calls, in its order: whether something refers to it.
  std::vector<bool> referred_to;

 private:
  /// Says whether references to keys that no scope has are replaced.
  enum class OtherKeys { replaced, kept };
  struct Replacement {
    const RawSection& section;
    const Scope& scope;
    OtherKeys other_keys;
    std::vector<std::string> chain;  ///< keys whose values are being replaced, the outermost first
  };

  std::string substitute(Replacement& r, std::string_view text, std::string& out);
  std::string refer(Replacement& r, const std::string& name, std::string& out);
  std::string refer_to_key(Replacement& r, const std::string& key, const IniValue& value, std::string& out);
  const IniValue* look_up(const RawSection& section, const std::string& key);

  const RawSection& defaults_;
  std::size_t spent_ = 0;
};

}  // namespace convnet
