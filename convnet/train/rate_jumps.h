// Learning rates that a resumed run would not have had.
#pragma once

#include <string>

#include "convnet/train/load_run.h"

namespace convnet {

/// Returns a warning that names the learning rates of the next batch that differ by more than 1 % between the
/// checkpoint's files and --epochs and those of now; "" if there are none. Needs the run's checkpoint.
std::string rate_jump_warning(const LoadedRun& run);

}  // namespace convnet
