#include "convnet/graph/settings.h"

#include <algorithm>
#include <cctype>

#include "convnet/config/ini_edit.h"
#include "convnet/config/text.h"
#include "layers/layer.h"

namespace convnet {
namespace {

/// Returns the place of the '=' if `text` begins with LAYER.KEY=, else npos.
std::size_t end_of_name(std::string_view text) {
  const std::size_t end = text.find_first_of("=,;[]");
  if (end == std::string_view::npos || text[end] != '=') return std::string_view::npos;
  const std::size_t dot = text.substr(0, end).rfind('.');
  if (dot == std::string_view::npos || trim(text.substr(0, dot)).empty()) return std::string_view::npos;
  const std::string_view key = trim(text.substr(dot + 1, end - dot - 1));
  const bool is_word =
      std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return is_word && !key.empty() ? end : std::string_view::npos;
}

/// Returns the place of the comma before the next setting, or the end of the text.
std::size_t end_of_setting(std::string_view text) {
  std::size_t comma = text.find(',');
  while (comma != std::string_view::npos && end_of_name(text.substr(comma + 1)) == std::string_view::npos)
    comma = text.find(',', comma + 1);
  return std::min(comma, text.size());
}

bool same_key(const Setting& a, const Setting& b) {
  return a.layer == b.layer && lower(a.key) == lower(b.key);
}

void add(std::vector<Setting>& settings, Setting setting) {
  std::erase_if(settings, [&](const Setting& other) { return same_key(other, setting); });
  settings.push_back(std::move(setting));
}

/// Returns the specs of a layer's keys, with those that all layers have.
std::vector<ParamSpec> specs_of(const LayerType& type, const IniSection& section) {
  std::vector<ParamSpec> specs = params_of(type, section);
  specs.insert(specs.end(), common_params().begin(), common_params().end());
  return specs;
}

std::vector<ParamSpec> specs_of_all_types() {
  std::vector<ParamSpec> specs = common_params();
  for (const LayerType& type : layer_types())
    specs.insert(specs.end(), type.params.begin(), type.params.end());
  return specs;
}

std::vector<std::string> names_of(const std::vector<ParamSpec>& specs) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : specs) names.push_back(spec.key);
  return names;
}

/// Removes "FILE:LINE: " from the beginning of a message.
std::string without_place(const std::string& message, const std::string& file) {
  const std::size_t end = message.find(": ", message.starts_with(file) ? file.size() : 0);
  return message.substr(end + 2);
}

/// Applies settings to the two files.
class Setter {
 public:
  Setter(IniFile& definition, IniFile& parameters, Diagnostics& diagnostics)
      : definition_(definition), parameters_(parameters), diagnostics_(diagnostics) {}

  void apply(const Setting& s) {
    if (s.layer == kDefaultSection) return apply_to_all(s);
    const IniSection* section = definition_.find(s.layer);
    if (section == nullptr) {
      std::vector<std::string> names;
      for (const IniSection& other : definition_.sections) names.push_back(other.name);
      return refuse(s, "there is no layer '" + s.layer + "'" + did_you_mean(s.layer, names));
    }
    const IniValue* type_name = section->find("type");
    const LayerType* type = type_name == nullptr ? nullptr : find_layer_type(type_name->text);
    if (type == nullptr && lower(s.key) != "type") return;  // the graph builder reports this layer
    const std::vector<ParamSpec> specs = type == nullptr ? common_params() : specs_of(*type, *section);
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [&](const ParamSpec& known) { return has_name(known, s.key); });
    if (spec != specs.end()) return set_known(s, *spec);
    // A name of the user's own, which other values refer to.
    for (const std::string& place : {s.layer, std::string(kDefaultSection)}) {
      std::vector<IniFile*> with_key;
      for (IniFile* file : {&parameters_, &definition_})
        if (has_own_key(*file, place, s.key)) with_key.push_back(file);
      for (IniFile* file : with_key) set(*file, s, s.key);
      if (!with_key.empty()) return;
    }
    refuse(s, "a layer of type '" + type->name + "' has no key '" + s.key + "'" +
                  did_you_mean(s.key, names_of(specs), "'convnet layers " + type->name + "' lists its keys"));
  }

  /// Makes messages about the values that were set name the option as their place. Call it last.
  void name_places() {
    for (const Set& set : set_) {
      const auto name_place = [&](IniSection& section) {
        for (IniValue& value : section.values) {
          if (value.key == set.key &&
              set.setting.layer == (value.from_default ? kDefaultSection : section.name))
            value.where.option = std::make_shared<const std::string>("--set " + set.setting.str());
        }
      };
      for (IniSection& section : set.file->sections) name_place(section);
      name_place(set.file->defaults);
    }
  }

 private:
  /// Sets a key that the layer's type has. Of a key that may stand in both files, a value in the parameter
  /// file wins over one in the definition file.
  void set_known(const Setting& s, const ParamSpec& spec) {
    std::vector<IniFile*> files;
    if (spec.file != CfgFile::definition) files.push_back(&parameters_);
    if (spec.file != CfgFile::parameters) files.push_back(&definition_);
    std::vector<std::string> names = spec.aliases;
    names.push_back(spec.key);
    for (IniFile* file : files) {
      for (const std::string& name : names) {
        if (has_own_key(*file, s.layer, name)) return set(*file, s, name);
      }
    }
    set(*files[0], s, s.key);
  }

  /// Sets a key of [DEFAULT]: in the files that have it there, else in the one that it belongs to.
  void apply_to_all(const Setting& s) {
    bool found = false;
    for (IniFile* file : {&parameters_, &definition_}) {
      if (!has_own_key(*file, kDefaultSection, s.key)) continue;
      set(*file, s, s.key);
      found = true;
    }
    if (found) return check_inherited(s);
    const std::vector<ParamSpec> specs = specs_of_all_types();
    bool defines = false, learns = false;
    for (const ParamSpec& spec : specs) {
      if (!has_name(spec, s.key)) continue;
      (spec.file == CfgFile::definition ? defines : learns) = true;
    }
    if (defines && learns)
      return refuse(s, "some layer types have '" + s.key + "' in one file, some in the other; name a layer");
    if (!defines && !learns)
      return refuse(s, "no layer type has a key '" + s.key + "'" + did_you_mean(s.key, names_of(specs)));
    set(defines ? definition_ : parameters_, s, s.key);
    check_inherited(s);
  }

  /// Refuses a key of [DEFAULT] that no layer takes from there, because the run would be the same without it.
  void check_inherited(const Setting& s) {
    const std::string key = lower(s.key);
    std::string owner;  // a layer that has such a key
    bool is_known = false;
    for (const ParamSpec& spec : specs_of_all_types()) is_known = is_known || has_name(spec, key);
    for (const IniSection& layer : definition_.sections) {
      const IniValue* type_name = layer.find("type");
      const LayerType* type = type_name == nullptr ? nullptr : find_layer_type(type_name->text);
      if (type == nullptr) return;  // the graph builder reports this layer
      const std::vector<ParamSpec> specs = specs_of(*type, layer);
      const bool has_key =
          std::any_of(specs.begin(), specs.end(), [&](const ParamSpec& spec) { return has_name(spec, key); });
      if (has_key && owner.empty()) owner = layer.name;
      for (const IniFile* file : {&definition_, &parameters_}) {
        const IniSection* section = file->find_or_default(layer.name);
        const IniValue* value = section == nullptr ? nullptr : section->find(key);
        if (value != nullptr && value->from_default && (has_key || !is_known)) return;
      }
    }
    for (const IniFile* file : {&definition_, &parameters_})
      if (refers_to(*file, key)) return;
    refuse(s, owner.empty()
                  ? "no layer of this net has the key '" + s.key + "'"
                  : "changes nothing, because all layers that have this key have a value of their own; "
                    "name a layer, like " +
                        owner + "." + s.key);
  }

  void set(IniFile& file, const Setting& s, const std::string& key) {
    Diagnostics before, after;
    parse_ini(file.path, file.text, before);
    file = with_value(file, s.layer, key, s.text, after);
    for (const std::string& error : after.errors()) {
      const std::vector<std::string>& old = before.errors();
      if (std::find(old.begin(), old.end(), error) == old.end()) refuse(s, without_place(error, file.path));
    }
    set_.push_back({&file, lower(key), s});
  }

  void refuse(const Setting& s, const std::string& why) {
    diagnostics_.error({}, "--set " + s.str() + ": " + why);
  }

  struct Set {
    IniFile* file;
    std::string key;
    Setting setting;
  };

  IniFile& definition_;
  IniFile& parameters_;
  Diagnostics& diagnostics_;
  std::vector<Set> set_;
};

}  // namespace

bool has_name(const ParamSpec& spec, const std::string& key) {
  const auto is_it = [&](const std::string& name) { return lower(name) == lower(key); };
  return is_it(spec.key) || std::any_of(spec.aliases.begin(), spec.aliases.end(), is_it);
}

std::string parse_settings(const std::string& text, const ParamSpec&, std::vector<Setting>& settings) {
  settings.clear();
  if (text.find_first_of(std::string("\n\r\0", 3)) != std::string::npos) return "may not have a line break";
  for (std::string_view rest = text; !trim(rest).empty();) {
    const std::size_t equals = end_of_name(rest);
    if (equals == std::string_view::npos)
      return "expects LAYER.KEY=VALUE, like conv1.epsW=0.01, or several with commas between them, not '" +
             std::string(rest) + "'";
    const std::size_t end = end_of_setting(rest);
    const std::string_view name = rest.substr(0, equals);
    const std::size_t dot = name.rfind('.');
    add(settings, {std::string(trim(name.substr(0, dot))), std::string(trim(name.substr(dot + 1))),
                   std::string(trim(rest.substr(equals + 1, end - equals - 1)))});
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return "";
}

std::string settings_text(const std::vector<Setting>& settings) {
  std::vector<std::string> texts;
  for (const Setting& setting : settings) texts.push_back(setting.str());
  return join(texts, ",");
}

std::string joined_settings(const std::string& before, const std::string& after) {
  std::vector<Setting> all, more;
  parse_settings(before, {}, all);
  parse_settings(after, {}, more);
  if (more.empty()) return "";
  for (Setting& setting : more) add(all, std::move(setting));
  return settings_text(all);
}

void apply_settings(const std::vector<Setting>& settings, IniFile& definition, IniFile& parameters,
                    Diagnostics& diagnostics) {
  Setter setter(definition, parameters, diagnostics);
  for (const Setting& setting : settings) setter.apply(setting);
  setter.name_places();
}

}  // namespace convnet
