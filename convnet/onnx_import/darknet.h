// Reads Darknet's nets that classify as models of ONNX's operators, from which an import makes a net:
//
//   ImportedModel net = import_model(read_darknet_model("darknet19.cfg", "darknet19.weights"), options);
#pragma once

#include <string>

#include "convnet/onnx_import/source_model.h"

namespace convnet {

/// The producer of these models (SourceModel::producer).
inline constexpr const char* kDarknet = "Darknet";

/// Reads a net's .cfg and its .weights. Throws InputError naming each line that describes what cannot be
/// imported, like detection, and for weights of another net. Batch norm uses epsilon 1e-5, as newer
/// versions of Darknet do.
SourceModel read_darknet_model(const std::string& cfg, const std::string& weights);

/// Reads the same of texts in memory; messages call them by these names.
SourceModel parse_darknet_model(const std::string& cfg_name, const std::string& cfg,
                                const std::string& weights_name, const std::string& weights);

}  // namespace convnet
