// From the sections of the two files to the nodes of a graph.
#pragma once

#include <vector>

#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "convnet/graph/graph.h"
#include "providers/provider.h"

namespace convnet {

/// Makes a node of every section and of every layer that a section puts above itself (dropout=, neuron=),
/// with inputs, shapes, owners of weights, and the devices of gpu= lines. Goes on after errors so that all of
/// them are found in one run; the graph is complete only without errors.
Graph read_sections(const IniFile& definition, const IniFile& parameters,
                    const std::vector<MatrixInfo>& matrices, const GraphOptions& options,
                    Diagnostics& diagnostics);

}  // namespace convnet
