// The run of training that `convnet plan` and `convnet bench` look at: a new one, or that of a checkpoint.
#pragma once

#include <functional>
#include <string>

#include "convnet/cli/command_line.h"
#include "convnet/net/predictor.h"
#include "convnet/train/requested_run.h"

namespace convnet {

/// Reads the options of the run that training would begin or go on with, and checks them as training does.
/// Its texts also have the options that the command alone has. Without a checkpoint, --layer-def,
/// --layer-params and --data-provider must be given; other options that training needs may be missing. Throws
/// InputError.
RequestedRun planned_run(const TrainingLine& line);

/// Opens the files and the data set of the run, whose ranges of batches become those of the options. Returns
/// whether they are batches of the data set; else images come from random data that no option divides into
/// batches. The net of a checkpoint needs neither the files nor the data set that it was trained with: unless
/// the command line names the data set or batches of it, random data of the same shapes replaces the data
/// set. Chooses the minibatch as training does if the run names only a net and its data, and prints a line
/// about it on stderr.
bool open_planned_run(RequestedRun& run, Diagnostics& diagnostics);

/// Builds the graph of the net. With --parallel auto, layers run where they did in the checkpoint's run if
/// that was on the same devices; else a search with `predictor` places them, and `found` becomes a line about
/// the search. With --mini auto, chooses the minibatch, and prints a line about it on stderr: for the memory
/// of `model`, or if it is null for what is free here. `knows_batches` is what open_planned_run() has
/// returned.
Graph graph_of(RequestedRun& run, bool knows_batches, const DeviceOptions& devices,
               const std::function<Predictor&()>& predictor, const Predictor* model, std::string& found,
               Diagnostics& diagnostics);

/// Throws InputError if --init-from names a file whose weights the net could not begin with.
void check_init_from(const RequestedRun& run, const Graph& graph, const PlanSet& plans);

}  // namespace convnet
