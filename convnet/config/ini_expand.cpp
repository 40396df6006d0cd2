#include "convnet/config/ini_expand.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "convnet/base/printable.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

/// Limits how much inheritance from [DEFAULT] and %(key)s may add to a file, because a few lines could expand
/// to any amount of text.
constexpr std::size_t max_expanded_bytes = std::size_t{16} << 20;
/// Bytes that each inherited value and each reference count in addition to their text.
constexpr std::size_t expansion_overhead = 128;
/// The maximal depth of references, as in Python's ConfigParser.
constexpr std::size_t max_nesting = 10;

/// Makes the final sections: adds inherited values and replaces %(key)s.
class Expander {
 public:
  Expander(const RawSection& defaults, Diagnostics& diagnostics)
      : defaults_(defaults), default_reported_(defaults.section.values.size()), diagnostics_(diagnostics) {}

  /// Returns false, after reporting it, once the file has grown beyond the limit.
  bool good() const { return spent_ <= max_expanded_bytes; }

  IniSection expand(const RawSection& raw) {
    IniSection section{raw.section.name, raw.section.where, {}};
    referred_to_.assign(raw.section.values.size(), false);
    for (const IniValue& value : raw.section.values) {
      std::string wrong;
      section.values.push_back(expand(raw, value, wrong));
      if (!wrong.empty()) report(raw, value, wrong);
      if (!good()) return section;
    }
    for (std::size_t i = 0; i < default_reported_.size(); ++i) {
      const IniValue& value = defaults_.section.values[i];
      if (raw.index.contains(value.key)) continue;
      std::string wrong = charge(value.text.size());
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
    for (std::size_t i = 0; i < referred_to_.size(); ++i) section.values[i].is_referred_to = referred_to_[i];
    return section;
  }

 private:
  void report(const RawSection& raw, const IniValue& value, const std::string& wrong) {
    diagnostics_.error(value.where, in_section(raw) + excerpt(value.written) + " " + wrong);
  }

  /// On a mistake `wrong` says which, and the text stays as it is.
  IniValue expand(const RawSection& raw, const IniValue& value, std::string& wrong) {
    IniValue out = value;
    if (value.text.find('%') == std::string::npos) return out;
    std::string text;
    std::vector<std::string> chain = {value.key};
    wrong = substitute(raw, value.text, chain, text);
    if (wrong.empty()) out.text = trim(text);
    return out;
  }

  std::string charge(std::size_t bytes) {
    spent_ += bytes + expansion_overhead;
    return good() ? "" : "is too much: [DEFAULT] and %(key)s make more than 16 MiB of this file";
  }

  /// Appends `text` with its references replaced to `out`; returns what is wrong, or "".
  std::string substitute(const RawSection& raw, std::string_view text, std::vector<std::string>& chain,
                         std::string& out) {
    for (;;) {
      const std::size_t percent = std::min(text.find('%'), text.size());
      out += text.substr(0, percent);
      if (std::string wrong = charge(percent); !wrong.empty()) return wrong;
      if (percent == text.size()) return "";
      text.remove_prefix(percent + 1);
      if (text.starts_with('%')) {
        out += '%';
        text.remove_prefix(1);
        continue;
      }
      const std::size_t close = std::min(text.find(')'), text.size());
      if (!text.starts_with('(') || close < 2 || !text.substr(close).starts_with(")s"))
        return "has a lone '%'; a percent sign is written '%%', a reference '%(key)s'";
      const std::string key = lower(text.substr(1, close - 1));
      text.remove_prefix(close + 2);
      if (std::string wrong = refer(raw, key, chain, out); !wrong.empty()) return wrong;
    }
  }

  std::string refer(const RawSection& raw, const std::string& key, std::vector<std::string>& chain,
                    std::string& out) {
    const IniValue* value = look_up(raw, key);
    if (!value)
      return "refers to " + excerpt("%(" + key + ")s") +
             ", but neither the section nor [DEFAULT] has that key";
    if (std::find(chain.begin(), chain.end(), key) != chain.end())
      return "refers to itself through " + excerpt("%(" + key + ")s");
    if (chain.size() > max_nesting)
      return "has references nested more than " + std::to_string(max_nesting) + " deep";
    chain.push_back(key);
    std::string wrong = substitute(raw, value->text, chain, out);
    chain.pop_back();
    return wrong;
  }

  const IniValue* look_up(const RawSection& raw, const std::string& key) {
    if (const auto own = raw.index.find(key); own != raw.index.end()) {
      referred_to_[own->second] = true;
      return &raw.section.values[own->second];
    }
    const auto inherited = defaults_.index.find(key);
    return inherited == defaults_.index.end() ? nullptr : &defaults_.section.values[inherited->second];
  }

  const RawSection& defaults_;
  std::vector<bool> default_reported_;  ///< one error for a wrong default, however many sections inherit it
  std::vector<bool> referred_to_;       ///< for each value that the section being expanded has itself
  Diagnostics& diagnostics_;
  std::size_t spent_ = 0;
};

}  // namespace

std::vector<IniSection> expand_sections(const std::vector<RawSection>& raw, Diagnostics& diagnostics) {
  std::vector<IniSection> sections;
  Expander expander(raw[0], diagnostics);
  for (std::size_t i = 1; i < raw.size() && expander.good(); ++i) sections.push_back(expander.expand(raw[i]));
  return sections;
}

IniSection expand_defaults(const std::vector<RawSection>& raw) {
  Diagnostics unreported;
  const RawSection empty{{"DEFAULT", raw[0].section.where, {}}, {}};
  return Expander(raw[0], unreported).expand(empty);
}

}  // namespace convnet
