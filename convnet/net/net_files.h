// From the two files of a net to its graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convnet/checkpoint/checkpoint.h"
#include "convnet/config/ini.h"
#include "convnet/graph/graph.h"
#include "convnet/net/fit_labels.h"
#include "convnet/net/options.h"
#include "convnet/plan/plan_set.h"

namespace convnet {

/// The two files of a net, parsed.
struct NetFiles {
  IniFile definition, parameters;
};

/// Returns whether the options name a definition that comes with the program, by its name and not by a path.
/// Such a net ends as the labels of the data set need it (fit_labels.h).
bool is_ready_net(const NetFileOptions& options);

/// Reads both files, which find_net_file() finds, converts the definition and gives keys other values as the
/// options say. A ready net gets the end that `labels` needs. Errors go to `diagnostics`, and a note on each
/// file that has another path than the option says, and on another end. Throws InputError if one of the files
/// cannot be read.
NetFiles read_net_files(const NetFileOptions& options, const LabelFit& labels, Diagnostics& diagnostics);
/// Parses the files as a checkpoint has them; their paths begin with its name, because the files at the
/// original paths may have changed since.
NetFiles stored_files(const Checkpoint& checkpoint, Diagnostics& diagnostics);
/// Reads the definition file alone, fits and converts it.
IniFile read_definition(const NetFileOptions& options, const LabelFit& labels, Diagnostics& diagnostics);
/// Reads the parameter file alone, for a net with this definition.
IniFile read_parameters(const NetFileOptions& options, const IniFile& definition, Diagnostics& diagnostics);
/// Returns the paths of these files.
std::string definition_file(const NetFileOptions& options);
std::string parameter_file(const NetFileOptions& options);
/// Returns the paths of those of the two that the options name.
std::vector<std::string> layer_files(const NetFileOptions& options);

/// Returns the options for plans of a net that learns.
PlanOptions plan_options(const StepOptions& options, const DeviceOptions& devices, const Provider& provider);
/// Returns the options for a graph on these devices.
GraphOptions graph_options(const NetFileOptions& files, const DeviceOptions& devices,
                           const StepOptions& step);
/// Throws InputError if a minibatch has too few images for the microbatches that the options ask for.
void check_microbatches(const Graph& graph, const StepOptions& options);
/// Returns a warning if --gpu lists more devices than the layers use, else "".
std::string unused_devices(const Graph& graph, const DeviceOptions& options);
/// Returns a warning if a layer normalises vectors over minibatches of one image, else "".
std::string lone_values(const Graph& graph, std::int64_t minibatch);
/// Returns a line for each way in which replicas and microbatches change what the net learns: weights that
/// are updated several times in a minibatch, and layers that normalise over a part of it.
std::string changes_of_learning(const Graph& graph, std::int64_t minibatch);
/// Builds the graph of both files for a data set. Throws InputError with all errors; warnings go to
/// `diagnostics`.
Graph checked_graph(const NetFiles& files, const Provider& provider, const GraphOptions& options,
                    Diagnostics& diagnostics);

}  // namespace convnet
