// --parallel auto: the program finds where layers run.
#pragma once

#include <string>

#include "convnet/net/net_files.h"
#include "convnet/net/predictor.h"
#include "convnet/place/search.h"
#include "convnet/runtime/processes.h"

namespace convnet {

/// The limits of a search.
struct SearchLimits {
  std::int64_t memory_limit = 0;  ///< bytes of each device; 0: what the model says, or no limit
  bool exhaustive = false;        ///< simulate every candidate
};

/// Returns the candidates for training the net on the devices that the options name; see search_placement().
/// Throws InputError if the files are wrong or no candidate fits the memory.
PlacementAnswer find_placements(const NetFiles& files, const Provider& provider,
                                const NetFileOptions& file_options, const DeviceOptions& devices,
                                const StepOptions& step, Predictor& predictor,
                                const SearchLimits& limits = {});

/// Returns the first line of a placement in checkpoints: what it was found for.
std::string placement_head(const DeviceOptions& devices, const StepOptions& step);

/// Returns the placement for --parallel auto, which all of several processes (else `processes` is null) get
/// from the first one. `found` becomes a line about it, on that process.
Placement auto_placement(const NetFiles& files, const Provider& provider, const NetFileOptions& file_options,
                         const DeviceOptions& devices, const StepOptions& step, Predictor& predictor,
                         std::string& found, Processes* processes = nullptr);

}  // namespace convnet
