// A parsed INI text, with what a test asks of it.
#pragma once

#include <string>
#include <vector>

#include "convnet/config/ini.h"
#include "tests/catch.h"

namespace convnet {

struct Parsed {
  using Strings = std::vector<std::string>;
  IniFile ini;
  Diagnostics diagnostics;

  explicit Parsed(std::string text) { ini = parse_ini("net.cfg", std::move(text), diagnostics); }

  const Strings& errors() const { return diagnostics.errors(); }
  const Strings& warnings() const { return diagnostics.warnings(); }
  bool clean() const { return errors().empty() && warnings().empty(); }
  Strings names() const {
    Strings all;
    for (const IniSection& s : ini.sections) all.push_back(s.name);
    return all;
  }
  const IniValue& value(const char* section, const char* key) const {
    const IniSection* s = ini.find(section);
    INFO(section << "." << key);
    REQUIRE(s);
    const IniValue* v = s->find(key);
    REQUIRE(v);
    return *v;
  }
  std::string text(const char* section, const char* key) const { return value(section, key).text; }
  bool has(const char* section, const char* key) const {
    const IniSection* s = ini.find(section);
    return s != nullptr && s->find(key) != nullptr;
  }
};

}  // namespace convnet
