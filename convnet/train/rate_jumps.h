// Learning rates that a resumed run would not have had.
#pragma once

#include <string>

#include "convnet/train/load_run.h"

namespace convnet {

/// Returns a warning that names learning rates which differ by more than 1 % between what the checkpoint's
/// files and
/// --epochs said for the next batch and what they say now; "" if there are none. Needs the run's checkpoint.
std::string rate_jump_warning(const LoadedRun& run);

}  // namespace convnet
