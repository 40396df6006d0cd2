#include "convnet/config/ini_expand.h"

#include <string>

#include "convnet/base/printable.h"
#include "convnet/config/ini_references.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

/// Makes the final sections: adds inherited values and replaces %(key)s.
class Expander {
 public:
  Expander(const RawSection& defaults, Diagnostics& diagnostics)
      : defaults_(defaults),
        default_reported_(defaults.section.values.size()),
        references_(defaults),
        diagnostics_(diagnostics) {}

  /// Returns false, after reporting it, once the file has grown beyond the limit.
  bool good() const { return references_.good(); }

  IniSection expand(const RawSection& raw) {
    IniSection section{raw.section.name, raw.section.where, {}};
    references_.referred_to.assign(raw.section.values.size(), false);
    for (const IniValue& value : raw.section.values) {
      std::string wrong;
      section.values.push_back(expand(raw, value, wrong));
      if (!wrong.empty()) report(raw, value, wrong);
      if (!good()) return section;
    }
    for (std::size_t i = 0; i < default_reported_.size(); ++i) {
      const IniValue& value = defaults_.section.values[i];
      if (raw.index.contains(value.key)) continue;
      std::string wrong = references_.charge(value.text.size());
      if (wrong.empty()) {
        section.values.push_back(expand(raw, value, wrong));
        section.values.back().from_default = true;
      }
      if (!wrong.empty() && !default_reported_[i]) {
        report(raw, value, wrong);
        default_reported_[i] = true;
      }
      if (!good()) return section;
    }
    for (std::size_t i = 0; i < references_.referred_to.size(); ++i)
      section.values[i].is_referred_to = references_.referred_to[i];
    return section;
  }

 private:
  void report(const RawSection& raw, const IniValue& value, const std::string& wrong) {
    diagnostics_.error(value.where, in_section(raw) + excerpt(value.written) + " " + wrong);
  }

  /// On a mistake `wrong` says which, and the text stays as it is. Templates have looked at wrong values.
  IniValue expand(const RawSection& raw, const IniValue& value, std::string& wrong) {
    IniValue out = value;
    if (value.is_wrong || value.text.find('%') == std::string::npos) return out;
    std::string text;
    wrong = references_.replace_all(raw, value.key, value.text, text);
    if (wrong.empty()) out.text = trim(text);
    out.is_wrong = !wrong.empty();
    return out;
  }

  const RawSection& defaults_;
  std::vector<bool> default_reported_;  ///< one error for a wrong default, however many sections inherit it
  References references_;
  Diagnostics& diagnostics_;
};

}  // namespace

std::vector<IniSection> expand_sections(const std::vector<FlatSection>& flat, Diagnostics& diagnostics) {
  std::vector<IniSection> sections;
  Expander expander(flat[0].raw, diagnostics);
  for (std::size_t i = 1; i < flat.size() && expander.good(); ++i)
    sections.push_back(expander.expand(flat[i].raw));
  return sections;
}

IniSection expand_defaults(const RawSection& defaults) {
  Diagnostics unreported;
  const RawSection empty{{kDefaultSection, defaults.section.where, {}}};
  IniSection section = Expander(defaults, unreported).expand(empty);
  for (IniValue& value : section.values) value.is_wrong = false;  // nobody has been told
  return section;
}

}  // namespace convnet
