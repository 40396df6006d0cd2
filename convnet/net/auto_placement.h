// --parallel auto: the program searches for the devices that layers run on.
#pragma once

#include <string>

#include "convnet/net/net_files.h"
#include "convnet/net/predictor.h"
#include "convnet/place/search.h"
#include "convnet/runtime/processes.h"

namespace convnet {

/// The limits of a search.
struct SearchLimits {
  std::int64_t memory_limit = 0;  ///< bytes of each device; 0: the machine's memory
  bool exhaustive = false;        ///< simulate every candidate
};

/// Returns the candidates for training the net on the devices that the options name; see search_placement().
/// Throws InputError if the files are wrong or no candidate fits the memory.
PlacementAnswer find_placements(const NetFiles& files, const Provider& provider,
                                const NetFileOptions& file_options, const DeviceOptions& devices,
                                const StepOptions& step, Predictor& predictor,
                                const SearchLimits& limits = {});

/// Returns the first line of a placement in checkpoints, which names the devices, hosts and minibatch that it
/// was found for.
std::string placement_head(const DeviceOptions& devices, const StepOptions& step);

/// Throws InputError if --model is given, but not --parallel auto, which alone reads it.
void check_model_used(const OptionTexts& given, const DeviceOptions& devices);

/// Returns the placement for --parallel auto. Of several processes (else `processes` is null), the first one
/// searches and the others get its placement. On the first process `found` becomes a line about the
/// placement.
Placement auto_placement(const NetFiles& files, const Provider& provider, const NetFileOptions& file_options,
                         const DeviceOptions& devices, const StepOptions& step, Predictor& predictor,
                         std::string& found, Processes* processes = nullptr);

}  // namespace convnet
