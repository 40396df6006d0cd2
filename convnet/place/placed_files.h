// A placement as lines of the two files.
#pragma once

#include "convnet/config/ini.h"
#include "convnet/graph/graph.h"

namespace convnet {

/// Two files that say where layers run.
struct PlacedFiles {
  IniFile definition, parameters;
};

/// Returns the files with the gpu=, parallel= and parts= lines of a placement, and updatePeriod= lines that
/// update weights as often as `placed`, the graph of the files with that placement, does. Lines are written
/// where layers do not follow their inputs; all other lines stay as they are.
PlacedFiles placed_files(const IniFile& definition, const IniFile& parameters, const Graph& placed,
                         const Placement& placement);

/// Returns a placement as text: a section for each layer, with gpu= and for divided layers parallel=model
/// and parts=.
std::string placement_text(const Placement& placement);

/// Reads the text of a placement, which may come from a damaged file. Throws InputError, whose message begins
/// with `source`, unless it places every layer of the definition, each on different ones of the first
/// `devices` devices.
Placement read_placement(const std::string& text, const IniFile& definition, int devices,
                         const std::string& source);

}  // namespace convnet
