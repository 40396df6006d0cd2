// Finds learning rates that change because a run is resumed with other files or options.
#pragma once

#include <string>

#include "convnet/train/load_run.h"

namespace convnet {

/// Returns a warning that names the learning rates that would differ by more than 1 % in the next batch with
/// the checkpoint's files and --epochs instead of the present ones; "" if there are none. The run must have a
/// checkpoint.
std::string rate_jump_warning(const LoadedRun& run);

}  // namespace convnet
