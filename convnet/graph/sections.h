// Makes the nodes of a graph from the sections of the two files.
#pragma once

#include <vector>

#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "convnet/graph/graph.h"
#include "providers/provider.h"

namespace convnet {

/// Makes a node for every section, and for every layer that a section puts above itself (dropout=, neuron=),
/// with inputs, shapes, owners of weights, and the devices of gpu= lines. Continues after errors so that one
/// run finds all of them; the graph is complete only if there are none.
Graph read_sections(const IniFile& definition, const IniFile& parameters,
                    const std::vector<MatrixInfo>& matrices, const GraphOptions& options,
                    Diagnostics& diagnostics);

}  // namespace convnet
