// Placements, which stand in checkpoints, on any bytes: the input is a definition file, then, after lines of
// "====", a parameter file and a placement. What is accepted must make a graph or errors, and be written.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "convnet/base/error.h"
#include "convnet/place/placed_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convnet;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string separator = "\n====\n";
  std::vector<std::string> parts;
  for (std::size_t at = 0; parts.size() < 3;) {
    const std::size_t cut = at > text.size() ? std::string::npos : text.find(separator, at);
    parts.push_back(at > text.size() ? "" : text.substr(at, cut - at));
    at = cut == std::string::npos ? text.size() + 1 : cut + separator.size();
  }
  Diagnostics diagnostics;
  const IniFile definition = parse_ini("net.cfg", parts[0], diagnostics);
  const IniFile parameters = parse_ini("params.cfg", parts[1], diagnostics);
  try {
    GraphOptions options;
    options.devices = 4;
    const Placement placement = read_placement(parts[2], definition, options.devices, "placement");
    options.placement = &placement;
    const std::vector<MatrixInfo> matrices = {{"data", {3, 32, 32}, DataType::u8, 0},
                                              {"labels", {1}, DataType::s32, 10}};
    const Graph graph = build_graph(definition, parameters, matrices, options, diagnostics);
    if (!diagnostics.has_errors()) placed_files(definition, parameters, graph, placement);
  } catch (const InputError&) {  // a refused placement
  }
  return 0;
}
