// The options that a checkpoint holds. A checkpoint may be a stranger's: it decides how its run goes on, but
// not what a command writes where.
#pragma once

#include <string>

#include "convnet/checkpoint/checkpoint.h"

namespace convnet {

/// Throws InputError, naming the file, if a checkpoint holds an option that no run stores, or a value that an
/// option does not take.
void check_options(const Checkpoint& checkpoint);

/// Reads a checkpoint as read_checkpoint() does, for a command that takes its options, and checks these.
Checkpoint read_run_checkpoint(const std::string& file_or_folder);

/// Returns those of a checkpoint's options that a command takes: all except those that name a file or folder
/// to be written.
OptionTexts taken_options(const Checkpoint& checkpoint);

}  // namespace convnet
