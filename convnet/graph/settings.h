// --set: gives single keys of the two files of a net other values.
#pragma once

#include <string>
#include <vector>

#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "convnet/config/params.h"

namespace convnet {

/// A key of a layer, or of [DEFAULT], and its new value.
struct Setting {
  std::string layer, key, text;
  std::string str() const { return layer + "." + key + "=" + text; }
  bool operator==(const Setting&) const = default;
};

/// Returns whether `key`, in upper or lower case, is the key of `spec` or another name of it.
bool has_name(const ParamSpec& spec, const std::string& key);

/// Reads "conv1.epsW=0.01,conv2.gpu=0,1". A comma begins the next setting if LAYER.KEY= follows it, else it
/// belongs to the value. The key is what follows the last dot. A later setting of a key replaces an earlier
/// one. Like parse_value(), it returns what is wrong, or "".
std::string parse_settings(const std::string& text, const ParamSpec& rules, std::vector<Setting>& settings);

/// Returns the settings in the form that parse_settings() reads.
std::string settings_text(const std::vector<Setting>& settings);

/// Returns the text of the settings in `before`, replaced and followed by those in `after`; "" if `after` is
/// empty, which clears them. Both texts must be right.
std::string joined_settings(const std::string& before, const std::string& after);

/// Gives the keys these values, each in the file that it belongs to. Only text is added or replaced in place,
/// so all other lines keep their numbers. Errors name the option.
void apply_settings(const std::vector<Setting>& settings, IniFile& definition, IniFile& parameters,
                    Diagnostics& diagnostics);

}  // namespace convnet
