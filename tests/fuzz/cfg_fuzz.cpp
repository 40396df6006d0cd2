// The cfg parser and the graph builder on any bytes: the input is a definition file, then, after a line of
// "====", a parameter file.
#include <cstddef>
#include <cstdint>
#include <string>

#include "convnet/graph/graph.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convnet;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string separator = "\n====\n";
  const std::size_t cut = text.find(separator);
  Diagnostics diagnostics;
  const IniFile definition = parse_ini("net.cfg", text.substr(0, cut), diagnostics);
  const IniFile parameters = parse_ini(
      "params.cfg", cut == std::string::npos ? "" : text.substr(cut + separator.size()), diagnostics);
  const std::vector<MatrixInfo> matrices = {{"data", {3, 32, 32}, DataType::u8, 0},
                                            {"labels", {1}, DataType::s32, 10}};
  build_graph(definition, parameters, matrices, {}, diagnostics);
  return 0;
}
