#include "convnet/config/params.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

#include "convnet/base/printable.h"

namespace convnet {
namespace {

/// The largest number of a parameter: layers compute in fp32.
constexpr double kLargestFloat = std::numeric_limits<float>::max();

/// " between 1 and 4096", " of at least 1", " of at most 1" or "".
std::string range_text(double min, double max) {
  if (std::isfinite(min) && std::isfinite(max))
    return " between " + format_number(min) + " and " + format_number(max);
  if (std::isfinite(min)) return " of at least " + format_number(min);
  if (std::isfinite(max)) return " of at most " + format_number(max);
  return "";
}

bool in_range(double value, const ParamSpec& spec) { return value >= spec.min && value <= spec.max; }

/// Returns the end of a message about a value with a habit of another language in it: what to write instead,
/// or "".
std::string habit_in(const std::string& text) {
  if (const std::size_t sign = text.find_first_of("#;"); sign != std::string::npos)
    return std::string("; a comment begins with a blank before its ") + text[sign];
  if (text.find("//") != std::string::npos) return "; a comment begins with a # behind a blank";
  if (text.find('|') != std::string::npos)
    return "; values with | between them belong to the copies of a section with repeat=";
  return "";
}

std::string expects(const std::string& what, const std::string& text) {
  return "expects " + what + ", not " + excerpt(text) + habit_in(text);
}

/// Returns what to write instead of a number with a unit, like 8GB or 224px; "" for other texts.
std::string without_unit(const std::string& text, const ParamSpec& spec) {
  const std::size_t unit = text.find_first_not_of("0123456789.");
  const bool has_unit = unit != 0 && unit != std::string::npos &&
                        text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ%",
                                               unit) == std::string::npos;
  return has_unit && !spec.unit.empty() ? "; write the number alone (" + spec.unit + ")" : "";
}

/// "an integer of at least 1 per input": what a value may be, in a sentence.
std::string phrase(const ParamSpec& spec) {
  constexpr std::string_view per_input = " per input";
  std::string type = spec.type;
  std::string suffix;
  if (type.ends_with(per_input)) {
    type.resize(type.size() - per_input.size());
    suffix = per_input;
  }
  const std::string range = range_text(spec.min, spec.max);
  if (type == "integer") return "an integer" + range + suffix;
  if (type == "integer or classes") return "an integer" + range + " or classes" + suffix;
  if (type == "number") return "a number" + range + suffix;
  if (type == "boolean") return "0 or 1" + suffix;
  if (type == "schedule") return "a number" + range + " or a schedule such as dexp[base=...]" + suffix;
  if (type == "choice") return "one of " + join(spec.choices);
  if (type == "names") return "a list of names";
  return "a " + type + suffix;
}

/// The names of all keys of a layer type and the file each belongs to.
class KnownKeys {
 public:
  void add(const std::vector<ParamSpec>& specs) {
    for (const ParamSpec& spec : specs) {
      add(spec.key, spec.file);
      for (const std::string& alias : spec.aliases) add(alias, spec.file);
    }
  }

  const std::vector<std::string>& names() const { return names_; }

  /// nullptr if unknown.
  const CfgFile* file_of(const std::string& key) const {
    const auto found = files_.find(lower(key));
    return found == files_.end() ? nullptr : &found->second;
  }

 private:
  void add(const std::string& name, CfgFile file) {
    names_.push_back(name);
    files_.emplace(lower(name), file);
  }

  std::vector<std::string> names_;
  std::map<std::string, CfgFile> files_;
};

/// Returns what to add to a message if `padding` is a word, like the "same" of other programs; "" for other
/// keys.
std::string padding_hint(const ParamSpec& spec, const std::string& text) {
  if (spec.key != "padding") return "";
  if (text == "same" || text == "SAME")
    return "; with stride 1, half the filter's size keeps the size of the image: 1 for a filter of 3, 2 for "
           "one of 5";
  if (text == "valid" || text == "VALID") return "; 0 adds no padding";
  return "";
}

/// The work of assign_params for one layer.
class Assigner {
 public:
  Assigner(const KnownKeys& known, const ForeignKeys& foreign, const std::string& layer, bool strict,
           Diagnostics& diagnostics)
      : known_(known),
        foreign_(foreign),
        prefix_("layer " + excerpt(layer) + ": "),
        strict_(strict),
        diagnostics_(diagnostics) {}

  /// Reports the keys of a section that do not belong into `file`.
  void check_keys(const IniSection& section, CfgFile file) {
    for (const IniValue& value : section.values) {
      if (value.from_default) continue;
      const CfgFile* right = known_.file_of(value.key);
      if (!right) {
        report_unknown(value, section);
      } else if (*right != CfgFile::both && *right != file) {
        warning(value.where, excerpt(value.written) + " belongs in the " +
                                 (*right == CfgFile::parameters ? "parameter" : "layer definition") +
                                 " file and is ignored here");
      }
    }
  }

  /// The value to use for `spec`, or nullptr.
  const IniValue* choose(const ParamSpec& spec, const IniSection& definition, const IniSection* parameters) {
    const IniValue* defined = spec.file == CfgFile::parameters ? nullptr : choose(spec, definition);
    const IniValue* given =
        spec.file == CfgFile::definition || !parameters ? nullptr : choose(spec, *parameters);
    if (!defined || !given) return given ? given : defined;
    if (given->from_default && !defined->from_default) return defined;
    if (!defined->from_default)
      warning(given->where, excerpt(given->written) + " is given in both files; this one is used");
    return given;
  }

  void assign(const ParamSpec& spec, const IniValue& value, std::size_t inputs, void* params) {
    if (value.is_wrong) {
      good_ = false;
    } else if (const std::string wrong = spec.assign(params, value.text, inputs); !wrong.empty())
      error(value.where, value.written + " " + wrong + padding_hint(spec, value.text));
  }

  void report_missing(const ParamSpec& spec, const SourceLocation& where) {
    // A misspelt key was reported already, and this is the one that it meant.
    for (const std::string& name : suggested_)
      if (name == spec.key || std::find(spec.aliases.begin(), spec.aliases.end(), name) != spec.aliases.end())
        return;
    std::string_view doc = spec.doc;
    if (doc.ends_with('.')) doc.remove_suffix(1);
    error(where, "'" + spec.key + "' is missing; it is " + phrase(spec) +
                     (doc.empty() ? "" : " (" + std::string(doc) + ")"));
  }

  void error(const SourceLocation& where, const std::string& message) {
    diagnostics_.error(where, prefix_ + message);
    good_ = false;
  }
  void warning(const SourceLocation& where, const std::string& message) {
    diagnostics_.warning(where, prefix_ + message);
  }

  /// Returns whether all keys and values so far are right.
  bool good() const { return good_; }

 private:
  void report_unknown(const IniValue& value, const IniSection& section) {
    const std::string close = nearest(value.written, known_.names(), typing_edits(value.written));
    if (close.empty() && value.is_referred_to) return;  // a name of the user's own
    const std::string message = "unknown key " + excerpt(value.written);
    const std::string hint = close.empty() ? "" : "; did you mean '" + close + "'?";
    if (const auto foreign = foreign_.find(value.key); foreign != foreign_.end()) {
      if (strict_) {
        error(value.where, message + ": " + foreign->second + hint);
      } else {
        warning(value.where, message + " is ignored: " + foreign->second + hint);
      }
    } else if (const IniValue* meant = close.empty() ? nullptr : section.find(close);
               meant != nullptr && !meant->from_default) {
      // It is a key of another program, because the section has the key that it looks like.
      if (strict_) {
        error(value.where, message + "; the section has '" + close + "', too");
      } else {
        warning(value.where, message + " is ignored; the section has '" + close + "', too");
      }
    } else if (!close.empty()) {
      suggested_.push_back(close);
      error(value.where, message + hint);
    } else if (strict_) {
      error(value.where, message);
    } else {
      warning(value.where, message + " is ignored");
    }
  }

  /// Among the key and its aliases, own values before inherited ones, then the last.
  const IniValue* choose(const ParamSpec& spec, const IniSection& section) {
    const IniValue* best = section.find(spec.key);
    for (const std::string& alias : spec.aliases) {
      const IniValue* other = section.find(alias);
      if (!other) continue;
      const IniValue* previous = best;
      if (!best || (best->from_default && !other->from_default) ||
          (best->from_default == other->from_default && other->where.line > best->where.line))
        best = other;
      if (previous && !previous->from_default && !other->from_default)
        warning(best->where, excerpt(previous->written) + " and " + excerpt(other->written) +
                                 " are the same key; " + excerpt(best->written) + " is used");
    }
    return best;
  }

  const KnownKeys& known_;
  const ForeignKeys& foreign_;
  std::string prefix_;
  bool strict_;
  Diagnostics& diagnostics_;
  std::vector<std::string> suggested_;  ///< keys suggested for unknown ones
  bool good_ = true;
};

}  // namespace

std::string parse_value(const std::string& text, const ParamSpec& spec, int& out) {
  if (const auto value = to_number<int>(text); value && in_range(*value, spec)) {
    out = *value;
    return "";
  }
  // A number that does not fit an int gets the limits of one to read about.
  const bool whole =
      !text.empty() &&
      text.find_first_not_of("0123456789", text[0] == '-' || text[0] == '+') == std::string::npos;
  const bool overflow = whole && text.size() > 9;
  const double lowest = overflow ? std::numeric_limits<int>::min() : spec.min;
  const double highest = overflow ? std::numeric_limits<int>::max() : spec.max;
  return expects("an integer" + range_text(std::max(spec.min, lowest), std::min(spec.max, highest)), text) +
         without_unit(text, spec);
}

std::string parse_value(const std::string& text, const ParamSpec& spec, std::optional<int>& out) {
  out.reset();
  if (text.empty()) return "";
  return parse_value(text, spec, out.emplace());
}

std::string parse_value(const std::string& text, const ParamSpec& spec, double& out) {
  const auto value = to_number<double>(text);
  if (value && std::abs(*value) > kLargestFloat)
    return expects("a number that fp32 holds, up to 3.4e+38", text);
  if (!value || !in_range(*value, spec))
    return expects("a number" + range_text(spec.min, spec.max), text) + without_unit(text, spec);
  out = *value;
  return "";
}

std::string parse_value(const std::string& text, const ParamSpec&, bool& out) {
  const std::string word = lower(text);
  const bool on = word == "1" || word == "true" || word == "yes" || word == "on";
  const bool off = word == "0" || word == "false" || word == "no" || word == "off";
  if (!on && !off) return expects("0 or 1 (also true/false, yes/no, on/off)", text);
  out = on;
  return "";
}

std::string parse_value(const std::string& text, const ParamSpec& spec, Schedule& out) {
  try {
    const Schedule value = Schedule::parse(text);
    if (std::abs(value.base()) > kLargestFloat) return expects("a rate that fp32 holds, up to 3.4e+38", text);
    if (!in_range(value.base(), spec))
      return expects("a rate" + range_text(spec.min, spec.max), format_number(value.base()));
    out = value;
    return "";
  } catch (const std::invalid_argument& wrong) {
    return std::string("has a wrong value: ") + wrong.what();
  }
}

std::string parse_value(const std::string& text, const ParamSpec&, std::string& out) {
  out = text;
  return "";
}

std::string parse_value(const std::string& text, const ParamSpec&, std::vector<std::string>& out) {
  out = split_list(text);
  return "";
}

namespace {

/// Appends an item of a list to `out`: a number, or a range. Returns what is wrong, or "".
std::string add_list_item(const std::string& item, const ParamSpec& spec, std::vector<int>& out) {
  // The first character may be a sign.
  const std::size_t dash = item.empty() ? std::string::npos : item.find('-', 1);
  int first = 0;
  if (std::string wrong = parse_value(item.substr(0, dash), spec, first); !wrong.empty()) return wrong;
  int last = first;
  if (dash != std::string::npos) {
    if (std::string wrong = parse_value(item.substr(dash + 1), spec, last); !wrong.empty()) return wrong;
    if (last < first)
      return "has the range " + excerpt(item) + ", which ends before it begins; write " +
             std::to_string(last) + "-" + std::to_string(first) + ", or single numbers for that order";
    const double most = spec.max - spec.min + 1;
    if (static_cast<double>(out.size()) + last - first + 1 > most)
      return "lists more than " + format_number(most) + " numbers";
  }
  for (int number = first; number <= last; ++number) out.push_back(number);
  return "";
}

}  // namespace

std::string parse_number_list(const std::string& text, const ParamSpec& spec, std::vector<int>& out) {
  out.clear();
  for (const std::string& item : split_list(text)) {
    if (std::string wrong = add_list_item(item, spec, out); !wrong.empty()) return wrong;
  }
  return "";
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  text = trim(text);
  if (text.empty()) return items;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && depth > 0) --depth;
    if (text[i] != ',' || depth > 0) continue;
    items.emplace_back(trim(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  items.emplace_back(trim(text.substr(begin)));
  return items;
}

ParamSpec param_hint(std::string key, ParamInfo info) {
  if (!info.fallback) info.fallback = "";
  ParamSpec spec = base_spec(std::move(key), "hint", std::move(info));
  spec.assign = [](void*, const std::string&, std::size_t) { return std::string(); };
  return spec;
}

namespace {

/// Returns whether inputs= of the section has swallowed the key, as an indented line below it.
bool is_line_of_inputs(const ParamSpec& spec, const IniSection& section) {
  const IniValue* value = section.find("inputs");
  std::string_view rest = value == nullptr || value->from_default ? std::string_view() : value->text;
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    rest.remove_prefix(end + 1);
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string key = lower(trim(line.substr(0, equals)));
    const auto is_it = [&](const std::string& name) { return lower(name) == key; };
    if (is_it(spec.key) || std::any_of(spec.aliases.begin(), spec.aliases.end(), is_it)) return true;
  }
  return false;
}

}  // namespace

bool assign_params(const std::vector<ParamSpec>& specs, const KnownElsewhere& elsewhere,
                   const std::string& layer, const IniSection& definition, const IniSection* parameters,
                   std::size_t inputs, bool strict, void* params, Diagnostics& diagnostics) {
  KnownKeys known;
  known.add(specs);
  known.add(elsewhere.common);
  Assigner assigner(known, elsewhere.foreign, layer, strict, diagnostics);
  // The caller reports layers without a section, all of them together.
  const bool is_inherited = parameters && parameters->name != definition.name;
  assigner.check_keys(definition, CfgFile::definition);
  if (parameters) assigner.check_keys(*parameters, CfgFile::parameters);

  for (const ParamSpec& spec : specs) {
    if (const IniValue* value = assigner.choose(spec, definition, parameters)) {
      assigner.assign(spec, *value, inputs, params);
    } else if (spec.fallback) {
      const std::string wrong = spec.assign(params, *spec.fallback, inputs);
      if (!wrong.empty()) throw std::logic_error("default of '" + spec.key + "': " + wrong);
    } else if (spec.file != CfgFile::parameters) {
      if (inputs > 0 || !is_line_of_inputs(spec, definition)) assigner.report_missing(spec, definition.where);
    } else if (parameters && !is_inherited) {
      assigner.report_missing(spec, parameters->where);
    }
  }
  return assigner.good();
}

std::vector<std::string> missing_keys(const std::vector<ParamSpec>& specs, const IniSection* parameters) {
  std::vector<std::string> missing;
  for (const ParamSpec& spec : specs) {
    if (spec.file != CfgFile::parameters || spec.fallback) continue;
    const auto has = [&](const std::string& key) { return parameters != nullptr && parameters->find(key); };
    if (!has(spec.key) && std::none_of(spec.aliases.begin(), spec.aliases.end(), has))
      missing.push_back(spec.key);
  }
  return missing;
}

const IniValue* choose_value(const std::string& key, const std::string& layer, const IniSection& definition,
                             const IniSection* parameters, Diagnostics& diagnostics) {
  ParamSpec spec;
  spec.key = key;
  spec.file = CfgFile::both;
  return choose_value(spec, layer, definition, parameters, diagnostics);
}

const IniValue* choose_value(const ParamSpec& spec, const std::string& layer, const IniSection& definition,
                             const IniSection* parameters, Diagnostics& diagnostics) {
  return Assigner(KnownKeys(), ForeignKeys(), layer, false, diagnostics).choose(spec, definition, parameters);
}

std::string describe_values(const ParamSpec& spec) {
  std::string out = spec.type;
  if (spec.type == "choice") out = "one of " + join(spec.choices);
  if (std::isfinite(spec.min) && std::isfinite(spec.max)) {
    out += " in [" + format_number(spec.min) + ", " + format_number(spec.max) + "]";
  } else if (std::isfinite(spec.min)) {
    out += " >= " + format_number(spec.min);
  } else if (std::isfinite(spec.max)) {
    out += " <= " + format_number(spec.max);
  }
  return spec.unit.empty() ? out : out + ", " + spec.unit;
}

}  // namespace convnet
