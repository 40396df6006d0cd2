#include "convnet/config/ini_references.h"

#include <algorithm>
#include <utility>

#include "convnet/base/printable.h"
#include "convnet/config/ini_expression.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

/// Limits how much inheritance from [DEFAULT], %(key)s and templates may add to a file, because a few lines
/// could expand to any amount of text.
constexpr std::size_t kMaxExpandedBytes = std::size_t{16} << 20;
/// Bytes that each inherited value, each reference and each section of a template count in addition to their
/// text.
constexpr std::size_t kExpansionOverhead = 128;
/// The maximal depth of references, as in Python's ConfigParser.
constexpr std::size_t kMaxNesting = 10;

/// Returns the place of the ')' that ends a reference whose text behind "%(" is `text`: the one that closes
/// its bracket, else the first. npos if there is none, or no 's' follows.
std::size_t end_of_reference(std::string_view text) {
  // No key is as long; a text with many beginnings of references is not searched to its end for each.
  constexpr std::size_t longest = 4096;
  text = text.substr(0, longest);
  std::size_t close = std::string_view::npos;
  int depth = 1;
  for (std::size_t i = 0; i < text.size() && depth > 0; ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')' && --depth == 0) close = i;
  }
  if (close == std::string_view::npos || !text.substr(close).starts_with(")s")) close = text.find(')');
  return close != std::string_view::npos && text.substr(close).starts_with(")s") ? close
                                                                                 : std::string_view::npos;
}

/// Returns the text as a value that is read again: with "%%" for each percent sign.
std::string with_escapes(std::string_view text) {
  std::string out;
  for (const char c : text) out.append(c == '%' ? 2 : 1, c);
  return out;
}

}  // namespace

std::string References::charge(std::size_t bytes) {
  spent_ += bytes + kExpansionOverhead;
  return good() ? "" : "is too much: [DEFAULT], %(key)s and templates make more than 16 MiB of this file";
}

bool References::good() const { return spent_ <= kMaxExpandedBytes; }

std::string References::replace_all(const RawSection& section, const std::string& key, std::string_view text,
                                    std::string& out) {
  Replacement r{section, {}, OtherKeys::replaced, {key}};
  return substitute(r, text, out);
}

std::string References::replace_scope(const RawSection& section, const Scope& scope, std::string_view text,
                                      std::string& out) {
  Replacement r{section, scope, OtherKeys::kept, {}};
  return substitute(r, text, out);
}

std::string References::resolve(const RawSection& section, const Scope& scope, std::string_view text,
                                std::string& out) {
  Replacement r{section, scope, OtherKeys::replaced, {}};
  return substitute(r, text, out);
}

std::string References::substitute(Replacement& r, std::string_view text, std::string& out) {
  for (;;) {
    const std::size_t percent = std::min(text.find('%'), text.size());
    out += text.substr(0, percent);
    if (std::string wrong = charge(percent); !wrong.empty()) return wrong;
    if (percent == text.size()) return "";
    text.remove_prefix(percent + 1);
    if (text.starts_with('%')) {
      out += r.other_keys == OtherKeys::kept ? "%%" : "%";
      text.remove_prefix(1);
      continue;
    }
    const std::size_t close =
        text.starts_with('(') ? end_of_reference(text.substr(1)) : std::string_view::npos;
    if (close == std::string_view::npos || close == 0)
      return "has a lone '%'; a percent sign is written '%%', a reference '%(key)s'";
    const std::string name = lower(text.substr(1, close));
    text.remove_prefix(close + 3);
    if (std::string wrong = refer(r, name, out); !wrong.empty()) return wrong;
  }
}

std::string References::refer(Replacement& r, const std::string& name, std::string& out) {
  if (const auto known = r.scope.find(name); known != r.scope.end()) {
    out += r.other_keys == OtherKeys::kept ? with_escapes(known->second) : known->second;
    return charge(known->second.size());
  }
  if (const IniValue* value = look_up(r.section, name)) return refer_to_key(r, name, *value, out);
  if (looks_like_expression(name)) {
    const auto value_of = [&](const std::string& part, std::int64_t& number) -> std::string {
      std::string text;
      const OtherKeys before = std::exchange(r.other_keys, OtherKeys::replaced);
      std::string wrong = refer(r, part, text);
      r.other_keys = before;
      if (!wrong.empty()) return wrong;
      const auto parsed = to_number<std::int64_t>(trim(text));
      if (!parsed) return "computes with " + excerpt(part) + ", which is " + excerpt(text) + ", no integer";
      number = *parsed;
      return "";
    };
    std::int64_t result = 0;
    std::string wrong = evaluate(name, value_of, result);
    if (!wrong.empty()) return "has " + excerpt("%(" + name + ")s") + ", which " + wrong;
    out += std::to_string(result);
    return "";
  }
  std::vector<std::string> names;
  for (const auto& [key, text] : r.scope) names.push_back(key);
  return "refers to " + excerpt("%(" + name + ")s") + ", but neither the section nor [DEFAULT] has that key" +
         (names.empty() ? "" : ", and it is no name of the template") + did_you_mean(name, names);
}

std::string References::refer_to_key(Replacement& r, const std::string& key, const IniValue& value,
                                     std::string& out) {
  if (r.other_keys == OtherKeys::kept) {
    out += "%(" + key + ")s";
    return charge(key.size());
  }
  if (std::find(r.chain.begin(), r.chain.end(), key) != r.chain.end())
    return "refers to itself through " + excerpt("%(" + key + ")s");
  if (r.chain.size() > kMaxNesting)
    return "has references nested more than " + std::to_string(kMaxNesting) + " deep";
  r.chain.push_back(key);
  std::string wrong = substitute(r, value.text, out);
  r.chain.pop_back();
  return wrong;
}

const IniValue* References::look_up(const RawSection& section, const std::string& key) {
  if (const auto own = section.index.find(key); own != section.index.end()) {
    if (own->second < referred_to.size()) referred_to[own->second] = true;
    return &section.section.values[own->second];
  }
  const auto inherited = defaults_.index.find(key);
  return inherited == defaults_.index.end() ? nullptr : &defaults_.section.values[inherited->second];
}

}  // namespace convnet
