// Prints what a user should know although the command goes on.
#pragma once

#include <string>
#include <vector>

namespace convnet {

/// Prints each note or warning on a line of its own to stderr. Empty texts, which stand for nothing to say,
/// are left out.
void print_notes(const std::vector<std::string>& notes);

}  // namespace convnet
