// Decides where and when the layers of a net run: replica sets, passes, update periods.
#pragma once

#include "convnet/config/diagnostics.h"
#include "convnet/config/ini.h"
#include "convnet/graph/graph.h"

namespace convnet {

/// Places data layers with their users, checks the replica counts, and fills in the number of passes and the
/// update periods. Everything wrong goes to `diagnostics`.
void find_placement(Graph& graph, const IniFile& parameters, const GraphOptions& options,
                    Diagnostics& diagnostics);

/// Where layers are elsewhere than their gpu= lines say: makes the updates of every layer span as many
/// minibatches as in `written`, the same net where these lines place it. A minibatch makes at most one update
/// here; a warning says where it makes several there. Needs find_placement() on both graphs.
void keep_periods(Graph& graph, const Graph& written, const IniFile& parameters, const GraphOptions& options,
                  Diagnostics& diagnostics);

/// Fills in the passes of every node. A layer with K replicas runs forward every K/fewest-th pass, on K
/// microbatches, and backward in the last of these passes. A layer below more replicas runs forward as early
/// as they need its output, and backward once all gradients that they make are there.
void find_passes(Graph& graph);

}  // namespace convnet
