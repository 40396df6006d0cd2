// The keys of one layer, from both files, as the interpreter reads them.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "convnet/config/params.h"

namespace convnet::reference {

class Keys {
 public:
  Keys(const IniSection& definition, const IniSection* parameters)
      : definition_(definition), parameters_(parameters) {}

  const std::string& name() const { return definition_.name; }
  std::string text(const std::string& key, const std::string& fallback = "") const {
    for (const IniSection* section : {parameters_, &definition_}) {
      if (section == nullptr) continue;
      if (const IniValue* value = section->find(key)) return value->text;
    }
    return fallback;
  }
  bool has(const std::string& key) const { return !text(key).empty(); }
  double number(const std::string& key, double fallback) const {
    return has(key) ? std::stod(text(key)) : fallback;
  }
  std::int64_t integer(const std::string& key, std::int64_t fallback) const {
    return has(key) ? std::stoll(text(key)) : fallback;
  }
  bool flag(const std::string& key, bool fallback) const {
    if (!has(key)) return fallback;
    const std::string t = text(key);
    return t == "1" || t == "true" || t == "yes" || t == "on";
  }
  std::vector<std::string> list(const std::string& key) const { return split_list(text(key)); }
  /// Returns entry i of a list; a single value stands for all inputs.
  std::string item(const std::string& key, std::size_t i, const std::string& fallback = "") const {
    const std::vector<std::string> items = split_list(text(key, fallback));
    return items.size() == 1 ? items[0] : items.at(i);
  }
  std::int64_t integer_of(const std::string& key, std::size_t i, const std::string& fallback = "") const {
    return std::stoll(item(key, i, fallback));
  }
  double number_of(const std::string& key, std::size_t i, const std::string& fallback = "") const {
    return std::stod(item(key, i, fallback));
  }

 private:
  const IniSection& definition_;
  const IniSection* parameters_;
};

}  // namespace convnet::reference
