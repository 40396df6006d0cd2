// Declared parameters. One table for each layer type drives parsing, range checks, error messages, help and
// docs.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convnet/base/printable.h"
#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "convnet/config/schedule.h"
#include "convnet/config/text.h"

namespace convnet {

/// The file that a key belongs to: layer definitions, layer parameters, or either of them.
enum class CfgFile { definition, parameters, both };

/// One declared key of a layer type.
struct ParamSpec {
  std::string key;                   ///< as documented: "filterSize"
  std::vector<std::string> aliases;  ///< older names: "partialSum" for "sumWidth"
  /// "integer", "number", "schedule", "boolean", "choice", "names"; for lists "integer per input".
  std::string type;
  std::optional<std::string> fallback;                    ///< default as text; nullopt: required
  double min = -std::numeric_limits<double>::infinity();  ///< allowed range of each number (or schedule base)
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices;  ///< allowed values of a "choice"
  std::string unit;  ///< "pixels", "maps", "" …; if the value is a name, what it names ("file", "folder")
  std::string doc;   ///< one sentence
  CfgFile file = CfgFile::definition;
  /// Parses `text` into the field of the struct at `params` for a layer of `inputs` inputs, 0 if their number
  /// is not known. Returns what is wrong ("expects an integer, not 'x'"), or "".
  std::function<std::string(void* params, const std::string& text, std::size_t inputs)> assign;
};

/// The default, range, unit, file and documentation of a key, for param().
struct ParamInfo {
  std::optional<std::string> fallback = {};
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string unit = {};
  std::string doc = {};
  CfgFile file = CfgFile::definition;
  std::vector<std::string> aliases = {};
};

/// These parse a value and return what is wrong ("expects an integer between 1 and 4096, not '0'"), or "". An
/// integer is "3" but not "3.0", a number may be "1e-3", and a boolean is one of 0/1 true/false yes/no
/// on/off.
std::string parse_value(const std::string& text, const ParamSpec& spec, int& out);
/// The text "" leaves `out` without a value.
std::string parse_value(const std::string& text, const ParamSpec& spec, std::optional<int>& out);
std::string parse_value(const std::string& text, const ParamSpec& spec, double& out);
std::string parse_value(const std::string& text, const ParamSpec& spec, bool& out);
std::string parse_value(const std::string& text, const ParamSpec& spec, Schedule& out);
std::string parse_value(const std::string& text, const ParamSpec& spec, std::string& out);
std::string parse_value(const std::string& text, const ParamSpec& spec, std::vector<std::string>& out);

/// Parses a comma list of integers from `spec.min` to `spec.max` and of ranges of them, "0-3,6", in the order
/// of the text. Like parse_value() it returns what is wrong, or "". A range may not make the list longer than
/// the numbers that there are.
std::string parse_number_list(const std::string& text, const ParamSpec& spec, std::vector<int>& out);

/// Splits a list at its commas, except those inside []. Blanks (and the line breaks of continuation lines)
/// around the items are removed. "" has no items.
std::vector<std::string> split_list(std::string_view text);

namespace detail {
template <class T>
struct TypeName;
template <>
struct TypeName<int> {
  static constexpr const char* value = "integer";
};
template <>
struct TypeName<std::optional<int>> : TypeName<int> {};
template <>
struct TypeName<double> {
  static constexpr const char* value = "number";
};
template <>
struct TypeName<bool> {
  static constexpr const char* value = "boolean";
};
template <>
struct TypeName<Schedule> {
  static constexpr const char* value = "schedule";
};
template <>
struct TypeName<std::string> {
  static constexpr const char* value = "name";
};
template <>
struct TypeName<std::vector<std::string>> {
  static constexpr const char* value = "names";
};
}  // namespace detail

inline ParamSpec base_spec(std::string key, std::string type, ParamInfo info) {
  ParamSpec spec;
  spec.key = std::move(key);
  spec.aliases = std::move(info.aliases);
  spec.type = std::move(type);
  spec.fallback = std::move(info.fallback);
  spec.min = info.min;
  spec.max = info.max;
  spec.unit = std::move(info.unit);
  spec.doc = std::move(info.doc);
  spec.file = info.file;
  return spec;
}

/// Declares a key whose value is the field `field` of Params: an int, double, bool, Schedule, string or list
/// of strings. An optional int has no value without the key, whose fallback must be "".
template <class Params, class T>
ParamSpec param(std::string key, T Params::*field, ParamInfo info) {
  ParamSpec spec = base_spec(std::move(key), detail::TypeName<T>::value, std::move(info));
  // The rules are copied into the closure: the spec itself moves into a table.
  spec.assign = [field, rules = spec](void* params, const std::string& text, std::size_t) {
    return parse_value(text, rules, static_cast<Params*>(params)->*field);
  };
  return spec;
}

/// Declares a key with one value for each input; a single value is used for all of them. Where the number of
/// inputs is not known, any number of values is right.
template <class Params, class T>
ParamSpec param_per_input(std::string key, std::vector<T> Params::*field, ParamInfo info) {
  ParamSpec spec =
      base_spec(std::move(key), std::string(detail::TypeName<T>::value) + " per input", std::move(info));
  spec.assign = [field, rules = spec](void* params, const std::string& text,
                                      std::size_t inputs) -> std::string {
    std::vector<std::string> items = split_list(text);
    if (items.empty() && rules.fallback == "") items.emplace_back();
    if (items.size() == 1 && inputs > 0) items.resize(inputs, items[0]);
    if (items.empty() && inputs > 0) return "has no value";
    if (items.size() != inputs && inputs > 0)
      return "has " + std::to_string(items.size()) + " values for " + std::to_string(inputs) +
             (inputs == 1 ? " input" : " inputs") + "; give one value, or one per input";
    std::vector<T>& out = static_cast<Params*>(params)->*field;
    out.assign(items.size(), T{});
    for (std::size_t i = 0; i < items.size(); ++i) {
      T value{};
      if (std::string wrong = parse_value(items[i], rules, value); !wrong.empty()) return wrong;
      out[i] = value;
    }
    return "";
  };
  return spec;
}

/// Declares a key whose value is one of `choices`, stored as its enum.
template <class Params, class E>
ParamSpec param_choice(std::string key, E Params::*field, std::vector<std::pair<std::string, E>> choices,
                       ParamInfo info) {
  ParamSpec spec = base_spec(std::move(key), "choice", std::move(info));
  for (const auto& choice : choices) spec.choices.push_back(choice.first);
  spec.assign = [field, choices, names = spec.choices](void* params, const std::string& text,
                                                       std::size_t) -> std::string {
    for (const auto& choice : choices) {
      if (choice.first == text) {
        static_cast<Params*>(params)->*field = choice.second;
        return "";
      }
    }
    // Where 0 and 1 are choices, the other words for them are understood, too.
    bool on = false;
    if (parse_value(text, ParamSpec(), on).empty()) {
      for (const auto& choice : choices) {
        if (choice.first != (on ? "1" : "0")) continue;
        static_cast<Params*>(params)->*field = choice.second;
        return "";
      }
    }
    return "expects one of " + join(names) + ", not " + excerpt(text) + did_you_mean(text, names);
  };
  return spec;
}

/// Declares a key without effect, which is accepted because published files have it (cuda-convnet2's
/// performance hints).
ParamSpec param_hint(std::string key, ParamInfo info);

/// Keys that other layer types have, in lower case, each with the reason why a layer without it ignores it.
/// The reason is the end of a sentence ("it belongs to layers of type pool").
using ForeignKeys = std::map<std::string, std::string>;

/// Known keys besides those of a layer's own type.
struct KnownElsewhere {
  /// Keys that every layer has ("type", "inputs"…). The caller assigns them.
  const std::vector<ParamSpec>& common;
  const ForeignKeys& foreign;
};

/// Fills in the struct at `params` from the layer's sections of the two files, by `specs` and their defaults,
/// and reports everything that is wrong, with file, line and layer:
/// - bad values and missing required keys are errors;
/// - an unknown key is an error under `strict`, or if it is within typing_edits() of a known key that the
///   section does not have, and no other layer type has a key of that name; else it gets a warning;
/// - a known key in the wrong file is ignored, with a warning that names the right file.
/// `parameters` is null if the parameter file has no section for the layer, or what the layer takes from its
/// [DEFAULT]; then nothing is said about missing keys of the parameter file (see missing_keys()). If both
/// files give a key that may stand in both, the parameter file wins, with a warning.
/// If inputs= is wrong, which the caller reports, `inputs` is 0 where their number is not known, and keys
/// that inputs= has swallowed as indented lines are not missing. Returns false after errors, and if a value
/// has a mistake that was reported before (IniValue::is_wrong).
bool assign_params(const std::vector<ParamSpec>& specs, const KnownElsewhere& elsewhere,
                   const std::string& layer, const IniSection& definition, const IniSection* parameters,
                   std::size_t inputs, bool strict, void* params, Diagnostics& diagnostics);

/// Returns the required keys of the parameter file that the section does not have. Null stands for an empty
/// section.
std::vector<std::string> missing_keys(const std::vector<ParamSpec>& specs, const IniSection* parameters);

/// Returns the value of a key that may stand in both files, as assign_params() chooses it: a section's own
/// value before an inherited one, then the parameter file's before the definition file's, with a warning.
/// Returns null if neither file has it.
const IniValue* choose_value(const std::string& key, const std::string& layer, const IniSection& definition,
                             const IniSection* parameters, Diagnostics& diagnostics);
/// The same for a declared key, which may be written by one of its older names.
const IniValue* choose_value(const ParamSpec& spec, const std::string& layer, const IniSection& definition,
                             const IniSection* parameters, Diagnostics& diagnostics);

/// Returns the allowed values for help and errors, like "integer in [1, 4096], pixels".
std::string describe_values(const ParamSpec& spec);

}  // namespace convnet
