// The keys that place a layer on devices: gpu=, parallel= and parts=.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "convnet/graph/graph.h"

namespace convnet {

/// Reads gpu=, parallel= and parts= of one section after the other, in the order of the file, into nodes
/// whose inputs are known. Errors go to `diagnostics`.
class DeviceReader {
 public:
  DeviceReader(const Graph& graph, const GraphOptions& options, Diagnostics& diagnostics)
      : graph_(graph), options_(options), diagnostics_(diagnostics) {}

  /// Fills in Node::gpus: the devices of the layer's gpu= line, else those of its first input that is not a
  /// data layer, else device 0. Data layers without the key get the devices of their users later
  /// (find_placement()). Returns false after an error.
  bool read_gpus(const IniSection& section, Node& node);

  /// Fills in Node::gpus and Node::division of a layer with parallel=model, and of an element-wise layer
  /// without a gpu= line whose inputs are divided. Needs Node::layer. Returns false after an error.
  bool read_parallel(const IniSection& section, Node& node);

  /// Checks that the devices in all gpu= lines of `definition` exist.
  void check_count(const IniFile& definition);

 private:
  bool parse_gpus(const IniSection& section, const IniValue& line, Node& node);
  static void divide(Node& node, const LayerPlace& place);
  void divide_as_inputs(Node& node) const;
  void error(const SourceLocation& where, const std::string& layer, const std::string& message);

  const Graph& graph_;
  const GraphOptions& options_;
  Diagnostics& diagnostics_;
  std::map<std::string, int> last_gpu_;  ///< by section: the largest index of its gpu= line
};

}  // namespace convnet
