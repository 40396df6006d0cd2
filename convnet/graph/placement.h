// Decides where the layers of a net run, and when their weights are updated: replica sets, passes, update
// periods.
#pragma once

#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "convnet/graph/graph.h"

namespace convnet {

/// Places data layers on the devices of their users, checks the numbers of replicas, and fills in the number
/// of passes and the update periods. Errors and warnings go to `diagnostics`.
void find_placement(Graph& graph, const IniFile& parameters, const GraphOptions& options,
                    Diagnostics& diagnostics);

/// Sets the update periods of a graph whose layers do not run where their gpu= lines say: the updates of
/// every layer span as many minibatches as in `written`, the graph of the same net as those lines place it.
/// If a layer has several updates a minibatch there, it has one here, and a warning says so. Needs
/// find_placement() on both graphs.
void keep_periods(Graph& graph, const Graph& written, const IniFile& parameters, const GraphOptions& options,
                  Diagnostics& diagnostics);

}  // namespace convnet
