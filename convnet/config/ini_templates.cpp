#include "convnet/config/ini_templates.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "convnet/base/names.h"
#include "convnet/base/printable.h"
#include "convnet/config/ini_references.h"
#include "convnet/config/params.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

/// The maximal depth of templates that use templates.
constexpr std::size_t kDeepest = 16;
/// The most copies of a section.
constexpr std::int64_t kMostCopies = 4096;
/// The most sections that a file may have if templates make them.

/// The keys of a section that say how often it stands there.
constexpr const char* kRepeat = "repeat";
constexpr const char* kIf = "if";

/// The indices of a repeated section.
struct Repetition {
  std::int64_t first = 0, count = 0;
};

void set(RawSection& raw, IniValue value) {
  const auto [found, fresh] = raw.index.emplace(value.key, raw.section.values.size());
  if (fresh)
    raw.section.values.push_back(std::move(value));
  else
    raw.section.values[found->second] = std::move(value);
}

/// Returns the section without a key.
RawSection without(const RawSection& raw, const std::string& key) {
  RawSection out{{raw.section.name, raw.section.where, {}}};
  out.comments = raw.comments;
  for (const IniValue& value : raw.section.values)
    if (value.key != key) set(out, value);
  return out;
}

/// Parses "3" or "1-4". Returns what is wrong, or "".
std::string parse_repetition(const std::string& text, Repetition& out) {
  const std::size_t dash = text.find('-');
  const auto first = to_number<std::int64_t>(trim(std::string_view(text).substr(0, dash)));
  if (dash == std::string::npos && first && *first >= 0) {
    out = {0, *first};
  } else {
    const auto last = dash == std::string::npos
                          ? std::nullopt
                          : to_number<std::int64_t>(trim(std::string_view(text).substr(dash + 1)));
    if (!first || !last || *first < 0 || *last < *first - 1 || *last > kMostCopies * kMostCopies)
      return "expects a number of copies or a range of indices, like 3 or 1-4, not " + excerpt(text);
    out = {*first, *last - *first + 1};
  }
  return out.count > kMostCopies ? "makes more than " + std::to_string(kMostCopies) + " copies" : "";
}

/// Returns the entry of a list with '|' for one of `count` copies: "a | b". A text without '|' is for all.
/// Returns what is wrong, or "".
std::string pick(std::string& text, std::int64_t index, std::int64_t count) {
  if (text.find('|') == std::string::npos) return "";
  std::vector<std::string_view> entries;
  for (std::string_view rest = text;;) {
    const std::size_t bar = std::min(rest.find('|'), rest.size());
    entries.push_back(trim(rest.substr(0, bar)));
    if (bar == rest.size()) break;
    rest.remove_prefix(bar + 1);
  }
  if (std::ssize(entries) != count)
    return "has " + std::to_string(entries.size()) + " values, one for each copy, but the section has " +
           std::to_string(count) + (count == 1 ? " copy" : " copies");
  text = std::string(entries[static_cast<std::size_t>(index)]);
  return "";
}

/// Brings a value into the form that it has when it is read from a file. Returns what is wrong if it would be
/// read as another one, or "".
std::string tidy(std::string& text) {
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trim(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    for (std::size_t i = 0; i < line.size(); ++i) {
      if ((line[i] == '#' || line[i] == ';') && (i == 0 ? !out.empty() : is_blank(line[i - 1])))
        return "would end in a comment: " + excerpt(line);
    }
    if (!line.empty()) out += (out.empty() ? "" : "\n") + std::string(line);
  }
  text = out == "\"\"" ? "" : out;
  return "";
}

/// Returns the place of the '(' in NAME(KEY=VALUE, …), which is not that of a reference; npos if there is
/// none.
std::size_t bracket_of_call(const std::string& type) {
  std::size_t open = type.find('(');
  while (open != std::string::npos && open > 0 && type[open - 1] == '%') open = type.find('(', open + 1);
  return open;
}

/// Makes the flat sections.
class TemplateUser {
 public:
  TemplateUser(const RawFile& file, Diagnostics& diagnostics)
      : file_(file), diagnostics_(diagnostics), references_(file.sections[0]) {
    for (const RawTemplate& t : file.templates) {
      if (by_name_.emplace(t.name, &t).second) continue;
      diagnostics_.error(t.where, "template " + excerpt(t.name) + " stands in line " +
                                      std::to_string(by_name_[t.name]->where.line) + " already");
    }
  }

  FlatFile read() {
    FlatFile result;
    result.is_plain.assign(file_.sections.size(), true);
    result.above.resize(file_.sections.size());
    flat_.push_back({file_.sections[0]});
    for (std::size_t i = 1; i < file_.sections.size() && good(); ++i) {
      made_by_ = i;
      const RawSection& raw = file_.sections[i];
      result.is_plain[i] = is_plain(raw);
      result.above[i] = above_;
      if (result.is_plain[i])
        add_plain(raw);
      else
        expand(raw, {}, nullptr);
    }
    for (const auto& [name, t] : by_name_) {
      if (!used_.contains(name) && good())
        diagnostics_.warning(t->where, "template " + excerpt(name) + " is not used");
    }
    result.sections = std::move(flat_);
    return result;
  }

 private:
  /// A use of a template whose sections are being made.
  struct Use {
    const RawTemplate* what;
    std::shared_ptr<const std::string> lines;  ///< the lines of the uses, the innermost first
    const Use* outer;
    std::size_t depth;
  };

  bool good() const { return references_.good() && flat_.size() <= kMostSections + 1; }

  void report(const SourceLocation& where, const RawSection& raw, const std::string& wrong) {
    diagnostics_.error(where, in_section(raw) + wrong);
  }
  void report(const RawSection& raw, const IniValue& value, const std::string& wrong) {
    report(value.where, raw, excerpt(value.written) + " " + wrong);
  }

  static SourceLocation place(SourceLocation where, const Use* use) {
    if (use == nullptr) return where;
    where.uses = use->lines;
    where.has_copies = true;
    return where;
  }

  /// Returns whether a section of the file stands for itself.
  bool is_plain(const RawSection& raw) {
    if (raw.section.find(kRepeat) != nullptr || raw.section.find(kIf) != nullptr) return false;
    const IniValue* type = raw.section.find("type");
    if (type == nullptr) return true;
    if (bracket_of_call(type->text) != std::string::npos) return false;
    std::string name;
    Scope scope;
    name_above(scope);
    if (!references_.resolve(raw, scope, type->text, name).empty())
      return true;  // reported with the other keys
    return !by_name_.contains(name);
  }

  /// Adds a section that the file has as it is. Only %(above)s is new there, so a key of that name wins.
  void add_plain(const RawSection& raw) {
    FlatSection section{raw, made_by_};
    const bool has_key = raw.index.contains("above") || file_.sections[0].index.contains("above");
    for (IniValue& value : section.raw.section.values) {
      if (has_key || lower(value.text).find("%(above)s") == std::string::npos) continue;
      std::string text, wrong;
      Scope scope;
      if (!name_above(scope)) wrong = "refers to '%(above)s', but no section is above this one";
      if (wrong.empty()) wrong = references_.replace_scope(raw, scope, value.text, text);
      if (wrong.empty()) wrong = tidy(text);
      if (!wrong.empty()) report(raw, value, wrong);
      value.is_wrong = !wrong.empty();
      if (!value.is_wrong) value.text = text;
    }
    add(std::move(section));
  }

  bool name_above(Scope& scope) const {
    if (!above_.empty()) scope["above"] = above_;
    return !above_.empty();
  }

  /// Makes what a section stands for, in a template or in the file (`use` is null).
  void expand(const RawSection& written, Scope scope, const Use* use) {
    RawSection raw = written;
    if (!read_call(raw, use)) return;
    for (IniValue& value : raw.section.values) value.where = place(value.where, use);
    raw.section.where = place(raw.section.where, use);
    const IniValue* repeat = raw.section.find(kRepeat);
    if (repeat == nullptr) return expand_copy(raw, std::move(scope), use, nullptr, 0);
    std::string text;
    Repetition repetition;
    std::string wrong = references_.resolve(raw, scope, repeat->text, text);
    if (wrong.empty()) wrong = parse_repetition(text, repetition);
    if (!wrong.empty()) return report(raw, *repeat, wrong);
    for (IniValue& value : raw.section.values) value.where.has_copies = true;
    raw.section.where.has_copies = true;
    for (std::int64_t i = 0; i < repetition.count && good(); ++i) {
      scope["i"] = std::to_string(repetition.first + i);
      expand_copy(raw, scope, use, &repetition, i);
    }
  }

  /// Makes one copy of a section that may be repeated.
  void expand_copy(const RawSection& raw, Scope scope, const Use* use, const Repetition* repetition,
                   std::int64_t copy) {
    name_above(scope);
    if (std::string wrong = references_.charge(raw.section.name.size()); !wrong.empty())
      return report(raw.section.where, raw, wrong);
    RawSection section{{raw.section.name, raw.section.where, {}}};
    section.comments = raw.comments;
    if (use != nullptr || repetition != nullptr) {
      std::string name;
      std::string wrong = references_.resolve(raw, scope, raw.section.name, name);
      section.section.name = trim(name);
      if (wrong.empty()) wrong = wrong_name(section.section.name);
      if (!wrong.empty()) return report(raw.section.where, raw, "its name " + wrong);
    }
    bool all_good = true;
    // A value with a list may come from a parameter, too, so lists are looked for before and after.
    RawSection picked{section.section};
    for (const IniValue& value : raw.section.values) {
      if (value.key == kRepeat) continue;
      IniValue one = value;
      std::string wrong;
      if (repetition != nullptr) {
        wrong = references_.charge(one.text.size());
        if (wrong.empty()) wrong = pick(one.text, copy, repetition->count);
      }
      if (!wrong.empty()) report(section, value, wrong);
      one.is_wrong = !wrong.empty();
      all_good = all_good && wrong.empty();
      set(picked, std::move(one));
    }
    for (const IniValue& value : picked.section.values) {
      IniValue made = value;
      if (made.is_wrong) {
        set(section, std::move(made));
        continue;
      }
      made.text.clear();
      std::string wrong = references_.replace_scope(picked, scope, value.text, made.text);
      if (wrong.empty() && repetition != nullptr) wrong = pick(made.text, copy, repetition->count);
      if (wrong.empty()) wrong = tidy(made.text);
      if (!wrong.empty()) report(section, value, wrong);
      made.is_wrong = !wrong.empty();
      if (made.is_wrong) made.text = value.text;
      all_good = all_good && wrong.empty();
      set(section, std::move(made));
    }
    if (!is_wanted(section)) return;
    if (const IniValue* type = section.section.find("type")) {
      std::string name;
      if (!type->is_wrong && references_.resolve(section, {}, type->text, name).empty()) {
        const auto found = by_name_.find(name);
        // A parameter with a mistake would be missing, too.
        if (found != by_name_.end()) {
          used_.insert(name);
          if (all_good) use_template(*found->second, without(section, kIf), use);
          return;
        }
      }
    }
    add({without(section, kIf), made_by_, true});
  }

  /// Returns what is wrong with the name of a section that was made, or "".
  static std::string wrong_name(const std::string& name) {
    if (name.empty()) return "is empty";
    if (name.find_first_of("]\n") != std::string::npos) return "would be " + excerpt(name);
    if (name == kDefaultSection || template_header(name))
      return "would be " + excerpt(name) + ", which has a meaning of its own";
    return "";
  }

  /// Evaluates `if`.
  bool is_wanted(const RawSection& section) {
    const IniValue* value = section.section.find(kIf);
    if (value == nullptr) return true;
    if (value->is_wrong) return false;
    std::string text;
    std::string wrong = references_.resolve(section, {}, value->text, text);
    if (!wrong.empty()) {
      report(section, *value, wrong);
      return false;
    }
    const std::string condition(trim(text));
    if (condition.empty()) return false;
    if (const auto number = to_number<double>(condition)) return *number != 0;
    bool wanted = false;
    wrong = parse_value(condition, ParamSpec{}, wanted);
    if (!wrong.empty())
      report(section, *value, "expects a number, 0 for no, or yes or no, not " + excerpt(text));
    return wanted;
  }

  /// Gives a section whose type is written as a call, NAME(key=value, …), the arguments as keys. Returns
  /// false after reporting a mistake.
  bool read_call(RawSection& raw, const Use* use) {
    const IniValue* type = raw.section.find("type");
    if (type == nullptr) return true;
    const std::size_t open = bracket_of_call(type->text);
    if (open == std::string::npos) return true;
    const std::string text = type->text;
    IniValue call = *type;
    call.text = trim(text.substr(0, open));
    set(raw, call);
    const SourceLocation where = place(call.where, use);
    const auto wrong = [&](const std::string& what) {
      report(where, raw, what);
      return false;
    };
    if (!text.ends_with(')')) return wrong("'type' lacks a ')' at its end: NAME(KEY=VALUE, …)");
    const std::string_view list = std::string_view(text).substr(open + 1, text.size() - open - 2);
    std::string before;  // key of the argument before
    for (const std::string& item : split_arguments(list)) {
      const std::size_t equals = item.find('=');
      const std::string key(trim(std::string_view(item).substr(0, equals)));
      if (equals == std::string::npos || !is_key(key)) {
        const bool goes_on = equals == std::string::npos && !before.empty();
        return wrong(
            "'type' expects KEY=VALUE between its brackets, not " + excerpt(item) +
            (goes_on ? "; a value with a comma needs a line of its own: " + printable(before) + "=…" : ""));
      }
      before = key;
      if (raw.index.contains(lower(key))) return wrong(excerpt(key) + " is given twice");
      set(raw, {lower(key), key, std::string(trim(std::string_view(item).substr(equals + 1))), call.where});
    }
    return true;
  }

  /// Returns whether a line of a file could begin with this key.
  static bool is_key(const std::string& text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
    });
  }

  /// Splits at commas outside of brackets.
  static std::vector<std::string> split_arguments(std::string_view text) {
    std::vector<std::string> items;
    int depth = 0;
    std::string item;
    for (const char c : text) {
      if (c == '(' || c == '[') ++depth;
      if (c == ')' || c == ']') --depth;
      if (c != ',' || depth > 0) {
        item += c;
        continue;
      }
      items.emplace_back(trim(item));
      item.clear();
    }
    if (!trim(item).empty() || !items.empty()) items.emplace_back(trim(item));
    return items;
  }

  /// Makes the sections of a template for a use of it.
  void use_template(const RawTemplate& t, const RawSection& section, const Use* outer) {
    const std::string which = "template " + excerpt(t.name) + " (line " + std::to_string(t.where.line) + ") ";
    const SourceLocation& where = section.section.where;
    for (const Use* use = outer; use != nullptr; use = use->outer) {
      if (use->what == &t) return report(where, section, which + "uses itself");
    }
    const std::size_t depth = outer == nullptr ? 1 : outer->depth + 1;
    if (depth > kDeepest)
      return report(where, section,
                    "templates use each other more than " + std::to_string(kDeepest) + " deep");
    Scope scope;
    scope["name"] = section.section.name;
    bool good_values = read_arguments(t, section, which, scope);
    for (const TemplateParameter& parameter : t.parameters) {
      if (scope.contains(parameter.name)) continue;
      if (section.index.contains(parameter.name)) continue;  // reported
      if (!parameter.fallback) {
        report(where, section, which + "needs " + excerpt(parameter.written));
        good_values = false;
        continue;
      }
      std::string text;
      const std::string wrong = references_.resolve(file_.sections[0], scope, *parameter.fallback, text);
      if (!wrong.empty()) {
        diagnostics_.error(t.where, "parameter " + excerpt(parameter.written) + " of template " +
                                        excerpt(t.name) + " " + wrong);
        good_values = false;
      }
      scope[parameter.name] = text;
    }
    if (!good_values) return;
    const std::string line = "line " + std::to_string(where.line);
    const Use use{&t,
                  std::make_shared<const std::string>(outer == nullptr ? line : line + ", " + *outer->lines),
                  outer, depth};
    for (const RawSection& part : t.sections) {
      if (!good()) return;
      RawSection copy = part;
      if (!commented_.insert(&part).second) copy.comments.clear();
      expand(copy, scope, &use);
    }
  }

  /// Reads the keys of a use into the scope of its template.
  bool read_arguments(const RawTemplate& t, const RawSection& section, const std::string& which,
                      Scope& scope) {
    bool all_good = true;
    scope["inputs"] = above_;
    for (const IniValue& value : section.section.values) {
      if (value.key == "type") continue;
      const auto is_it = [&](const TemplateParameter& parameter) { return parameter.name == value.key; };
      if (value.key != "inputs" && std::none_of(t.parameters.begin(), t.parameters.end(), is_it)) {
        std::vector<std::string> names = {"inputs"};
        for (const TemplateParameter& parameter : t.parameters) names.push_back(parameter.written);
        report(value.where, section,
               which + "has no parameter " + excerpt(value.written) +
                   did_you_mean(value.written, names, "it has " + join(names)));
        all_good = false;
        continue;
      }
      std::string text;
      if (std::string wrong = references_.replace_all(section, value.key, value.text, text); !wrong.empty()) {
        report(section, value, wrong);
        all_good = false;
        continue;
      }
      scope[value.key] = trim(text);
    }
    return all_good;
  }

  /// Adds a section. Sections of the same name are merged if the file itself has at least one of them: its
  /// values win.
  void add(FlatSection section) {
    section.makers.assign(section.raw.section.values.size(), section.made_by);
    const auto [found, fresh] = places_.emplace(section.raw.section.name, flat_.size());
    if (fresh) {
      if (flat_.size() > kMostSections)  // the first one is [DEFAULT]
        diagnostics_.error(section.raw.section.where,
                           "templates make more than " + std::to_string(kMostSections) + " sections");
      note_above(section.raw.section);
      flat_.push_back(std::move(section));
      return;
    }
    FlatSection& other = flat_[found->second];
    if (section.is_made && other.is_made) {
      const SourceLocation& first = other.raw.section.where;
      return report(section.raw.section.where, section.raw,
                    "stands there twice, the first time from " + first.str() +
                        "; the names of a template's sections need %(name)s in them, and of a repeated "
                        "section %(i)s");
    }
    for (IniValue& value : section.raw.section.values) {
      const auto known = other.raw.index.find(value.key);
      if (known != other.raw.index.end() && section.is_made) continue;
      const std::size_t at = known == other.raw.index.end() ? other.makers.size() : known->second;
      if (at == other.makers.size()) other.makers.emplace_back();
      other.makers[at] = section.made_by;
      set(other.raw, std::move(value));
    }
  }

  /// Notes the name that %(above)s is from now on. Data layers count only as long as there is no other, and
  /// the first of them before the others: the layer after data and labels reads the data.
  void note_above(const IniSection& section) {
    const IniValue* type = section.find("type");
    const bool is_data = type != nullptr && type->text == "data";
    if (above_.empty() || !is_data) above_ = section.name;
  }

  const RawFile& file_;
  Diagnostics& diagnostics_;
  References references_;
  std::unordered_map<std::string, const RawTemplate*> by_name_;
  std::set<std::string> used_;             ///< names of templates
  std::set<const RawSection*> commented_;  ///< sections of templates whose comments have been copied
  std::vector<FlatSection> flat_;
  std::unordered_map<std::string, std::size_t> places_;  ///< in flat_, by name
  std::size_t made_by_ = 0;
  std::string above_;  ///< the layer that %(above)s names; "" if there is none
};

}  // namespace

bool has_templates(const RawFile& file) {
  if (!file.templates.empty()) return true;
  return std::any_of(file.sections.begin() + 1, file.sections.end(), [](const RawSection& raw) {
    return std::any_of(raw.section.values.begin(), raw.section.values.end(), [](const IniValue& value) {
      return value.key == kRepeat || value.key == kIf ||
             (value.key == "type" && bracket_of_call(value.text) != std::string::npos) ||
             lower(value.text).find("%(above)s") != std::string::npos;
    });
  });
}

FlatFile use_templates(const RawFile& file, Diagnostics& diagnostics) {
  if (has_templates(file)) return TemplateUser(file, diagnostics).read();
  FlatFile flat;
  for (std::size_t i = 0; i < file.sections.size(); ++i) flat.sections.push_back({file.sections[i], i});
  return flat;
}

}  // namespace convnet
