// Folders that a run writes to.
#pragma once

#include <string>

namespace convnet {

/// Throws InputError if no folder can be made or written at `path`; `what` ends the message: "checkpoints are
/// to be saved in". Makes nothing.
void check_folder_writable(const std::string& path, const std::string& what);

/// Makes a folder and those above it; "" is the current one. Throws RunError.
void make_folders(const std::string& path);

}  // namespace convnet
