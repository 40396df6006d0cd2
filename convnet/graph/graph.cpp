#include "convnet/graph/graph.h"

#include "convnet/graph/gradients.h"
#include "convnet/graph/parts.h"
#include "convnet/graph/placement.h"
#include "convnet/graph/rewrites.h"
#include "convnet/graph/sections.h"
#include "convnet/graph/tensor_names.h"

namespace convnet {
namespace {

/// Reads the sections and places the layers, without what build_graph() derives from that.
Graph placed_graph(const IniFile& definition, const IniFile& parameters,
                   const std::vector<MatrixInfo>& matrices, const GraphOptions& options,
                   Diagnostics& diagnostics) {
  Graph graph = read_sections(definition, parameters, matrices, options, diagnostics);
  if (!diagnostics.has_errors()) find_placement(graph, parameters, options, diagnostics);
  return graph;
}

/// Warns that --parallel data could not follow the gpu= lines of the file, if that decides when weights are
/// updated.
void warn_of_lost_passes(const Graph& graph, const Diagnostics& placement, Diagnostics& diagnostics) {
  for (const Node& node : graph.nodes) {
    if (node.layer->update_period <= 1) continue;
    diagnostics.warning(node.where,
                        "layer '" + node.section +
                            "': its updatePeriod counts minibatches, because the gpu= lines, whose "
                            "passes it counts otherwise, are wrong: " +
                            placement.errors().front());
    return;
  }
}

}  // namespace

Graph build_graph(const IniFile& definition, const IniFile& parameters,
                  const std::vector<MatrixInfo>& matrices, const GraphOptions& options,
                  Diagnostics& diagnostics) {
  Graph graph = placed_graph(definition, parameters, matrices, options, diagnostics);
  if (diagnostics.has_errors()) return graph;
  const bool counts_passes = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                         [](const Node& n) { return n.layer->update_period > 0; });
  if (options.moved() && counts_passes) {
    Diagnostics placement;
    Graph written = placed_graph(definition, parameters, matrices, GraphOptions(), placement);
    // Periods that do not fit the passes are errors, too, but then the passes are known.
    const bool lost = placement.has_errors() && written.passes == 1;
    if (lost) written = {};
    keep_periods(graph, written, parameters, options, diagnostics);
    if (lost) warn_of_lost_passes(graph, placement, diagnostics);
  }
  expand_parts(graph);
  check_names(graph, diagnostics);
  mark_gradients(graph);
  warn_of_idle_weights(graph, diagnostics);
  graph.in_place = options.rewrites;
  if (options.rewrites) apply_rewrites(graph);
  return graph;
}

Placement written_placement(const IniFile& definition, const IniFile& parameters,
                            const std::vector<MatrixInfo>& matrices, const GraphOptions& options,
                            Diagnostics& diagnostics) {
  Placement placement;
  for (const Node& node : placed_graph(definition, parameters, matrices, options, diagnostics).nodes) {
    if (node.implicit) continue;
    placement[node.section] = {node.division.gpus.empty() ? node.gpus : node.division.gpus, node.parts()};
  }
  return placement;
}

}  // namespace convnet
