// --set on any bytes: the input is the option's text, then, after lines of "====", a definition file and a
// parameter file.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "convnet/graph/settings.h"

namespace {

/// Returns the text up to the next separator and removes both from `rest`.
std::string next_part(std::string& rest) {
  const std::string separator = "\n====\n";
  const std::size_t cut = rest.find(separator);
  const std::string part = rest.substr(0, cut);
  rest = cut == std::string::npos ? "" : rest.substr(cut + separator.size());
  return part;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convnet;
  std::string rest(reinterpret_cast<const char*>(data), size);
  std::vector<Setting> settings;
  if (!parse_settings(next_part(rest), {}, settings).empty()) return 0;
  std::vector<Setting> again;
  if (!parse_settings(settings_text(settings), {}, again).empty() || again != settings) __builtin_trap();
  Diagnostics diagnostics;
  IniFile definition = parse_ini("net.cfg", next_part(rest), diagnostics);
  IniFile parameters = parse_ini("params.cfg", rest, diagnostics);
  apply_settings(settings, definition, parameters, diagnostics);
  return 0;
}
