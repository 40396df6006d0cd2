// The cfg parser and the graph builder on any bytes: the input is a definition file, then, after a line of
// "====", a parameter file. The flat form of a file without mistakes says the same as the file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "convnet/config/ini_flat.h"
#include "convnet/config/ini_lines.h"
#include "convnet/graph/graph.h"

namespace {

using namespace convnet;

using Key = std::tuple<std::string, std::string, bool>;

std::vector<Key> keys_of(const IniSection& section) {
  std::vector<Key> keys;
  for (const IniValue& value : section.values) keys.emplace_back(value.key, value.text, value.from_default);
  std::sort(keys.begin(), keys.end());
  return keys;
}

void check_flat_form(const IniFile& file) {
  const std::string text = flat_text(file);
  if (text.size() > kMaxIniBytes) return;
  Diagnostics diagnostics;
  const IniFile flat = parse_ini(file.path, text, diagnostics);
  if (diagnostics.has_errors() || flat.sections.size() != file.sections.size()) std::abort();
  for (std::size_t i = 0; i < flat.sections.size(); ++i) {
    if (flat.sections[i].name != file.sections[i].name) std::abort();
    if (keys_of(flat.sections[i]) != keys_of(file.sections[i])) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string separator = "\n====\n";
  const std::size_t cut = text.find(separator);
  Diagnostics diagnostics;
  const IniFile definition = parse_ini("net.cfg", text.substr(0, cut), diagnostics);
  if (!diagnostics.has_errors()) check_flat_form(definition);
  const IniFile parameters = parse_ini(
      "params.cfg", cut == std::string::npos ? "" : text.substr(cut + separator.size()), diagnostics);
  const std::vector<MatrixInfo> matrices = {{"data", {3, 32, 32}, DataType::u8, 0},
                                            {"labels", {1}, DataType::s32, 10}};
  build_graph(definition, parameters, matrices, {}, diagnostics);
  return 0;
}
